"""Tests of ``epochal run``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from epochal.config import load
from small_project import Command, run_folders, tree, write


def result_of(folder: Path) -> dict[str, object]:
    values: dict[str, object] = json.loads((folder / "result.json").read_text())
    return values


def config_of(folder: Path) -> dict[str, dict[str, object]]:
    (path,) = (folder / "config").glob("expanded.*")
    plain: dict[str, dict[str, object]] = load(path).root.to_plain()
    return plain


def test_run_trains_and_prints_its_folder(shop: Path, epochal: Command) -> None:
    done = epochal("run", "config.yaml")
    assert done.code == 0, done.err
    (folder,) = run_folders(shop)
    assert "finished (max_epochs): 2 epochs, 12 steps" in done.out
    assert f"record   {folder.relative_to(shop)}" in done.out
    assert folder.parent.relative_to(shop) == Path("runs/store/shop")


def test_output_for_pipes_has_one_line_per_interval(shop: Path, epochal: Command) -> None:
    out = epochal("run", "config.yaml").out
    (line,) = [line for line in out.splitlines() if "Epoch [1/2][2/6]" in line]
    for part in ("lr: 5.0", "eta: ", "time: ", "data_time: ", "loss: ", "acc: "):
        assert part in line
    assert "\x1b" not in out
    assert "val" in out


def test_overrides_variants_and_epochs_change_the_run(shop: Path, epochal: Command) -> None:
    for words, lr, epochs in (
        (("config.yaml", "optim.lr=0.3", "train.for=1ep"), 0.3, 1),
        (("--device", "cpu", "config.yaml", "--epochs", "1", "optim.lr=0.3"), 0.3, 1),
        (("config.yaml", "--variant", "long"), 0.05, 3),
    ):
        assert epochal("run", *words).code == 0, words
        folder = run_folders(shop)[-1]
        assert (config_of(folder)["optim"]["lr"], result_of(folder)["epochs"]) == (lr, epochs), (
            words
        )


def test_all_variants_run_in_turn(shop: Path, epochal: Command) -> None:
    done = epochal("run", "config.yaml", "--variant", "all", "--fast")
    assert done.code == 0
    rates = [config_of(folder)["optim"]["lr"] for folder in run_folders(shop)]
    assert sorted(rates) == [0.05, 0.5]
    assert "2 runs, 0 failed" in done.out


def test_series_continues_after_a_failure_and_gives_its_exit_code(
    shop: Path, epochal: Command
) -> None:
    write(shop / "bad.yaml", "$BASE: config.yaml\ntask: {type: shop.parts.FloatLoss}\n")
    write(shop / "worse.yaml", "$BASE: config.yaml\ntask: {type: shop.parts.Stumbling}\n")
    done = epochal("run", "bad.yaml", "worse.yaml", "config.yaml", "--fast")
    assert done.code == 70
    assert "3 runs, 2 failed" in done.err
    assert done.err.count("run failed") == 2
    assert "finished (max_epochs)" in done.out
    statuses = [result_of(folder)["status"] for folder in run_folders(shop)]
    assert sorted(map(str, statuses)) == ["failed", "failed", "finished"]


def test_series_with_mistakes_is_not_started_at_all(shop: Path, epochal: Command) -> None:
    write(shop / "bad.yaml", "$BASE: config.yaml\noptim: {lr: fast}\n")
    write(shop / "worse.yaml", "$BASE: config.yaml\ntagg: x\nmodle: y\n")
    before = tree(shop)
    done = epochal("run", "config.yaml", "bad.yaml", "gone.yaml", "worse.yaml", "seeed=1")
    assert done.code == 78
    for text in ("'fast'", "gone.yaml: no such file", "did you mean 'tag'?", "'modle'"):
        assert text in done.err
    assert done.err.count("did you mean 'seed'?") == 1
    assert "worse.yaml: 3 mistakes\nnothing was started\n" in done.err
    assert done.out == ""
    assert tree(shop) == before


def test_missing_file_first_gives_its_exit_code(shop: Path, epochal: Command) -> None:
    assert epochal("run", "gone.yaml", "config.yaml").code == 66
    assert run_folders(shop) == []


def test_each_of_several_runs_is_announced(shop: Path, epochal: Command) -> None:
    table = {
        "all": ["variant hot", "variant long"],
        "base,all": ["config.yaml", "variant hot", "variant long"],
        "long, base": ["variant long", "config.yaml"],
        "base": [],
    }
    for chosen, expected in table.items():
        out = epochal("run", "config.yaml", "--variant", chosen, "--fast", "--no-file").out
        announced = [line for line in out.splitlines() if line.startswith("run ")]
        assert [line.rpartition(", ")[2].rpartition(": ")[2] for line in announced] == expected
        total = len(expected)
        starts = [f"run {i} of {total}: config.yaml" for i in range(1, total + 1)]
        assert [line[: len(start)] for line, start in zip(announced, starts, strict=True)] == starts
        titles = [line.partition(" shop, ")[2] for line in out.splitlines() if " shop, " in line]
        assert titles == [one for one in expected if one.startswith("variant")], chosen


def test_an_unknown_one_of_several_variants_is_reported(shop: Path, epochal: Command) -> None:
    done = epochal("run", "config.yaml", "--variant", "hot,lnog")
    assert done.code == 78
    assert "no variant 'lnog'\n  did you mean 'long'?" in done.err


def test_all_variants_are_checked_before_the_first_runs(shop: Path, epochal: Command) -> None:
    write(shop / "odd.yaml", "$BASE: config.yaml\nvariants: {z: {optim.lr: fast}}\n")
    done = epochal("run", "odd.yaml", "--variant", "all")
    assert done.code == 78
    assert "odd.yaml: 1 mistake\n" in done.err
    assert run_folders(shop) == []


def test_failure_is_printed_once(shop: Path, epochal: Command) -> None:
    done = epochal("run", "config.yaml", "task.type=shop.parts.Stumbling")
    assert done.code == 1
    assert done.err.count("the shelf is empty") == 2  # the message, and the line of code


def test_name_and_desc_fill_the_readme(shop: Path, epochal: Command) -> None:
    done = epochal("run", "config.yaml", "--fast", "--name", "My Größe", "--desc", "is it\nwide?")
    assert done.code == 0, done.err
    (folder,) = run_folders(shop)
    readme = (folder / "README.md").read_text(encoding="utf-8")
    assert readme.startswith("# My Größe\n\nis it\nwide?\n")
    assert json.loads((folder / "run.json").read_text())["tag"] == "My Größe"


def test_impossible_number_of_epochs_is_refused(shop: Path, epochal: Command) -> None:
    for epochs in ["0", "-1", "x"]:
        done = epochal("run", "config.yaml", "--epochs", epochs)
        assert done.code in (2, 78), epochs
        assert "epoch" in done.err or "train.for" in done.err, epochs
        assert run_folders(shop) == [], epochs


def test_fast_uses_three_batches_of_each_split(shop: Path, epochal: Command) -> None:
    write(
        shop / "shop" / "count.py",
        """
        import collections, json
        import epochal as ep
        class Count(ep.Hook):
            def setup(self, run):
                self.seen = collections.Counter()
            def batch_end(self, run, split, index, batch, out):
                self.seen[split] += 1
            def run_end(self, run):
                (run.dir / "media" / "seen.json").write_text(json.dumps(self.seen))
        """,
    )
    assert epochal("run", "config.yaml", "--fast", "hooks=[{type: shop.count.Count}]").code == 0
    (folder,) = run_folders(shop)
    assert json.loads((folder / "media" / "seen.json").read_text()) == {"train": 3, "val": 3}


def test_no_file_writes_nothing_at_all(shop: Path, epochal: Command) -> None:
    before = tree(shop)
    done = epochal("run", "config.yaml", "--no-file")
    assert done.code == 0
    assert tree(shop) == before
    assert "  record " not in done.out


def test_no_file_writes_nothing_when_a_run_fails_either(shop: Path, epochal: Command) -> None:
    before = tree(shop)
    done = epochal("run", "config.yaml", "--no-file", "task.type=shop.parts.FloatLoss")
    assert done.code == 70
    assert tree(shop) == before
    assert "epochal show" not in done.err


def test_cpu_can_be_chosen(shop: Path, epochal: Command) -> None:
    for words in [("--device", "cpu"), ("--gpus", "0")]:
        assert epochal("run", "config.yaml", "--fast", *words).code == 0, words
        run = json.loads((run_folders(shop)[-1] / "run.json").read_text())
        assert run["device"]["device"] == "cpu", words


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_missing_accelerators_are_refused(shop: Path, epochal: Command) -> None:
    done = epochal("run", "config.yaml", "--gpus", "2")
    assert done.code == 78
    assert "--gpus: this machine has no accelerator, got 2" in done.err
    assert run_folders(shop) == []


def test_exact_log_dir_is_the_folder_of_the_run(shop: Path, epochal: Command) -> None:
    changes = (
        "record.log_dir=mine",
        "record.exact=true",
        "record.log_file=story.txt",
        "record.subdirs=[plots, dumps/deep]",
    )
    assert epochal("run", "config.yaml", "--fast", *changes).code == 0
    for name in ("result.json", "logs/story.txt", "plots", "dumps/deep"):
        assert (shop / "mine" / name).exists(), name
    again = epochal("run", "config.yaml", "--fast", *changes)
    assert again.code == 74
    assert "mine" in again.err


def test_log_dir_is_where_runs_are_collected(shop: Path, epochal: Command) -> None:
    assert epochal("run", "config.yaml", "--fast", "record.log_dir=kept").code == 0
    (status,) = (shop / "kept" / "store" / "shop").glob("*/status.json")
    assert status.is_file()


def test_code_may_be_in_another_folder(
    shop: Path, epochal: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    write(Path("far.yaml"), f"$BASE: {shop / 'config.yaml'}\n")
    assert epochal("run", "far.yaml", "--fast", "--user-dir", shop).code == 0
    assert run_folders(tmp_path / "elsewhere")


def test_python_config_runs_when_it_is_allowed(shop: Path, epochal: Command) -> None:
    write(shop / "conf.py", "config = {'$BASE': 'config.yaml', 'tag': 'py'}\n")
    assert epochal("run", "conf.py", "--fast").code == 78
    assert epochal("run", "conf.py", "--fast", "--allow-python").code == 0
    assert len(run_folders(shop)) == 1


def test_words_that_are_neither_files_nor_overrides_are_refused(
    shop: Path, epochal: Command
) -> None:
    for words, message in [
        (("optim.lr", "=", "3"), "optim.lr = 3: has spaces around '='\n  write optim.lr=3\n"),
        (("optim.lr=", "3"), "optim.lr= 3: has spaces around '='\n  write optim.lr=3\n"),
        (("optim.lr", "=3"), "optim.lr =3: has spaces around '='\n  write optim.lr=3\n"),
        (("optim/lr=3",), "optim/lr=3: 'optim/lr' is not a valid key\n  write optim.lr=3\n"),
        (("+a.b=1",), "epochal has no '+'"),
        (("~a.b",), "write 'a.b=$delete'"),
        (("lr",), "lr: neither a config file that exists nor key=value\n  write lr=VALUE"),
        (("config",), "config: neither a config file that exists nor key=value\n  did you mean"),
        (("other.yaml",), "other.yaml: no such file"),
    ]:
        done = epochal("run", "config.yaml", *words)
        assert done.code in (66, 78), words
        assert message in done.err, words
        assert run_folders(shop) == [], words


def test_hints_name_records_outside_of_runs_by_path(shop: Path, epochal: Command) -> None:
    done = epochal("run", "config.yaml", "--fast", "record.exact=true", "record.log_dir=mine")
    assert "  next     epochal show mine\n           epochal test mine\n" in done.out
    assert epochal("show", "mine").code == 0


def test_dry_run_says_which_processes_would_start(shop: Path, epochal: Command) -> None:
    done = epochal("run", "config.yaml", "--nproc", "3", "--device", "cpu", "--dry-run")
    assert done.code == 0
    text = "config.yaml: 3 processes on cpu, connected by gloo, that share each batch"
    assert done.out.strip() == text
    assert run_folders(shop) == []
    several = ("--nnodes", "1:3", "--rdzv-endpoint", "node1:29400", "--device", "cpu", "--dry-run")
    done = epochal("run", "config.yaml", *several)
    text = (
        "1 process on each of 1 to 3 machines, which connect to node1:29400; on cpu, connected by"
    )
    assert text in done.out
    for words, expected in (
        (
            ("--nnodes", "2"),
            "--rdzv-endpoint: missing; several machines need an address to connect to",
        ),
        (("--rdzv-endpoint", "a:1"), "--rdzv-endpoint: 'a:1' is for several machines"),
        (("--nnodes", "3:1", "--rdzv-endpoint", "a:1"), "--nnodes: the largest number comes last"),
        (("--nnodes", "two", "--rdzv-endpoint", "a:1"), "--nnodes: must be a number of machines"),
        (("--nnodes", "2", "--keep-alive"), "--nnodes: cannot be combined with --keep-alive"),
        (("--nnodes", "2", "--then-test"), "--nnodes: cannot be combined with --then-test"),
        (("--nnodes", "2", "--no-file"), "--nnodes: cannot be combined with --no-file"),
        (("--nnodes", "2", "--variant", "all"), "--nnodes: several machines share one run"),
    ):
        done = epochal("run", "config.yaml", "--device", "cpu", *words)
        assert (done.code, expected in done.err) == (78, True), (words, done.err)
    done = epochal("plan", "config.yaml", "--nproc", "3", "--device", "cpu")
    assert "Train on 3 processes on cpu, connected by gloo" in " ".join(done.out.split())
    done = epochal("run", "config.yaml", "--devices", "cpu", "--gpus", "2")
    assert done.code == 78
    assert "--gpus: the pool gives each run its device" in done.err
    done = epochal("run", "config.yaml", "--devices", "cpu", "--no-file")
    assert "--no-file: results of a pool are read from its records" in done.err
    done = epochal("run", "config.yaml", "--devices", "cpu", "--debug-rank", "1")
    assert "--debug-rank: the pool gives each run its device" in done.err
    done = epochal("run", "config.yaml", "--debug", "--nproc", "2")
    assert done.code == 78
    assert "--debug: debugs one process, and there are 2" in done.err
    assert run_folders(shop) == []
