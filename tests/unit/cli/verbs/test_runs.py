"""Tests of ``epochal runs``."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

import epochal as ep
from epochal.records.folder.labels import change_labels
from indexed import record_run
from small_project import Command, run_folders

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def history(shop: Path, epochal: Command) -> list[Path]:
    """A training, a test of it, and a failure, oldest first."""
    epochal("run", "config.yaml")
    epochal("test", "last")
    epochal("run", "config.yaml", "task.type=shop.parts.FloatLoss", "--name", "broken")
    return run_folders(shop)


def test_every_run_has_a_line(history: list[Path], epochal: Command) -> None:
    done = epochal("runs")
    assert done.code == 0
    header, *lines = done.out.splitlines()
    assert header.split()[:6] == ["run", "project", "tag", "desc", "runner", "status"]
    start = header.index("runner")
    assert [line[start:].split()[:2] for line in lines[:3]] == [
        ["train", "finished"],
        ["test", "finished"],
        ["train", "failed"],
    ]
    assert f"test of {lines[0].split()[0][-4:]} " in lines[1]
    assert "val/acc" in lines[0]
    assert "test/acc" in lines[1]
    assert "TaskError" in lines[2]


def test_variant_is_shown_where_there_is_one(shop: Path, epochal: Command) -> None:
    epochal("run", "config.yaml", "--fast")
    assert "variant" not in epochal("runs").out
    epochal("run", "config.yaml", "--fast", "--variant", "hot")
    header, _, second = epochal("runs").out.splitlines()[:3]
    assert header.split()[3:5] == ["variant", "runner"]
    assert second.split()[3:5] == ["hot", "train"]
    assert [run["variant"] for run in json.loads(epochal("runs", "--json").out)] == [None, "hot"]


def test_monitored_metric_comes_first(shop: Path, epochal: Command) -> None:
    metrics = "metrics=[{type: mean, name: zeal}]"
    epochal("run", "config.yaml", "--fast", "monitor=+val/zeal", metrics)
    header, line = epochal("runs").out.splitlines()[:2]
    assert line[header.index("result") :].startswith("val/zeal ")
    shown = epochal("show", "last").out
    assert shown.index("  val/zeal ") < shown.index("  val/acc ")


def test_unknown_status_is_refused(shop: Path, epochal: Command) -> None:
    done = epochal("runs", "--status", "fialed")
    assert done.code == 78
    assert "did you mean 'failed'?" in done.err
    assert epochal("runs", "--status", "lost").code == 0


def test_runs_can_be_filtered(history: list[Path], epochal: Command) -> None:
    def ids(*words: object) -> list[str]:
        return [run["id"] for run in json.loads(epochal("runs", "--json", *words).out)]

    assert ids() == [folder.name for folder in history]
    assert len(ids("--status", "failed")) == 1
    assert ids("broken") == ids("--status", "failed")
    assert len(ids("--limit", 2)) == 2
    assert ids("--limit", 0) == []
    assert ids("broken", "nothing") == []


def test_json_holds_what_the_table_shows(history: list[Path], epochal: Command) -> None:
    first = json.loads(epochal("runs", "--json").out)[0]
    assert (first["project"], first["tag"], first["runner"]) == ("store", "shop", "train")
    assert (first["status"], first["step"], first["epoch"]) == ("finished", 12, 2)
    assert first["best"] == first["metrics"]["val/acc"]
    assert first["damage"] == []


def test_empty_list_has_a_hint(shop: Path, epochal: Command) -> None:
    done = epochal("runs")
    assert done.code == 0
    assert "`epochal run FILE` creates one" in done.out
    assert json.loads(epochal("runs", "--json").out) == []


def test_other_folder_of_runs(history: list[Path], shop: Path, epochal: Command) -> None:
    (shop / "runs").rename(shop / "kept")
    assert json.loads(epochal("runs", "--json").out) == []
    assert len(json.loads(epochal("runs", "--json", "--runs-dir", "kept").out)) == 3


def test_damaged_records_are_listed(shop: Path, epochal: Command) -> None:
    epochal("run", "config.yaml", "--fast")
    wrong_types = b'{"status": 3, "metrics": 4, "best": [1], "started": 5}'
    for name in ("run.json", "status.json", "result.json"):
        path = run_folders(shop)[0] / name
        intact = path.read_bytes()
        for content in (b"", b"[]", b"\xff{", wrong_types, None):
            if content is None:
                path.unlink()
            else:
                path.write_bytes(content)
            assert epochal("runs").code == 0, (name, content)
            assert len(json.loads(epochal("runs", "--json").out)) == 1, (name, content)
        path.write_bytes(intact)


def test_number_of_resumes_is_shown(history: list[Path], epochal: Command) -> None:
    assert "resumed" not in epochal("runs").out
    status = json.loads((history[0] / "status.json").read_text())
    (history[0] / "status.json").write_text(json.dumps(status | {"attempt": 2}))
    out = epochal("runs").out
    assert "resumed" in out
    assert " 2x " in out


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Three seeds of one config, one of them failed, and a run of another config."""
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "runs"
    folders = [record_run(root, seed=seed, accuracy=0.625 + 0.25 * seed) for seed in range(2)]
    folders.append(record_run(root, seed=2, accuracy=0.1, status="failed"))
    folders.append(record_run(root, tag="wide", lr=0.01, accuracy=0.95))
    return folders


def table(epochal: Command, *words: object) -> list[list[str]]:
    """The lines of a table as words."""
    done = epochal("runs", *words)
    assert done.code == 0, done.err
    return [line.split() for line in done.out.partition("\n\n")[0].splitlines()]


def test_query_filters_and_sorts(made: list[Path], epochal: Command) -> None:
    where = ("--where", "optim.lr > 1e-3 and val/acc > 0.5", "--sort", "val/acc desc")
    header, *lines = table(epochal, *where)
    assert header[-3:] == ["optim.lr", "val/acc", "result"]
    assert [line[0] for line in lines] == [made[3].name, made[1].name, made[0].name]
    assert [line[0] for line in table(epochal, *where, "--limit", 1)[1:]] == [made[3].name]


def test_error_in_a_query_is_marked(made: list[Path], epochal: Command) -> None:
    done = epochal("runs", "--where", "optim.lr > 1e-4 and val/accc > 0.9")
    assert done.code == 78
    assert done.err.splitlines() == [
        "--where: unknown name 'val/accc'",
        "    optim.lr > 1e-4 and val/accc > 0.9",
        "                        ^^^^^^^^",
        "  did you mean 'val/acc'?",
    ]


def test_unknown_names_are_refused_in_every_option(made: list[Path], epochal: Command) -> None:
    for option in ["--where", "--sort", "--columns", "--group"]:
        text = "lrr > 1" if option == "--where" else "lrr"
        done = epochal("runs", option, text)
        assert done.code == 78, option
        assert done.err.startswith(f"{option}: unknown name 'lrr'"), option


def test_columns_can_be_chosen(made: list[Path], epochal: Command) -> None:
    lines = table(epochal, "wide", "--columns", "optim.*, min(val/acc)")
    assert lines == [
        ["run", "optim.lr", "optim.type", "min(val/acc)"],
        [made[3].name, "0.01", "SGD", "0.75"],
    ]
    assert table(epochal, "--columns", "changed")[0] == ["run", "optim.lr"]


def test_runs_can_be_searched(made: list[Path], epochal: Command) -> None:
    (made[0] / "README.md").write_text("# shop\n\nfirst try with the new data\n")
    assert [line[0] for line in table(epochal, "--search", "new data")[1:]] == [made[0].name]


def test_replicates_are_grouped(made: list[Path], epochal: Command) -> None:
    _, *lines = (line for line in epochal("runs", "--group").out.splitlines())
    assert lines[0].split()[:4] == [made[2].name, "2", "of", "3"]
    assert "0.75 ± 1.6" in lines[0]
    assert lines[1].split()[:2] == [made[3].name, "1"]
    by_type = epochal("runs", "--group", "optim.type").out.splitlines()
    assert by_type[1].split()[1:5] == ["3", "of", "4", "SGD"]
    limited = epochal("runs", "--group", "--sort", "val/acc desc", "--limit", 1).out
    assert made[3].name in limited
    assert made[2].name not in limited
    rows = json.loads(epochal("runs", "--group", "--json").out)
    assert [(row["runs"], row["counted"]) for row in rows] == [(3, 2), (1, 1)]
    assert rows[0]["val/acc"] == pytest.approx(0.75)


def test_csv_and_json_have_the_columns(made: list[Path], epochal: Command) -> None:
    words = ("--columns", "seed, val/acc", "--where", "tag = shop and status = finished")
    assert epochal("runs", *words, "--format", "csv").out == "seed,val/acc\n0,0.625\n1,0.875\n"
    rows = json.loads(epochal("runs", *words, "--json").out)
    assert rows == [{"seed": 0, "val/acc": 0.625}, {"seed": 1, "val/acc": 0.875}]
    header = epochal("runs", "--format", "csv").out.splitlines()[0].split(",")
    assert {"run", "status", "optim.lr", "val/acc", "path"} <= set(header)


def test_suffix_of_the_file_selects_the_format(
    made: list[Path], tmp_path: Path, epochal: Command
) -> None:
    for name in ["runs.csv", "runs.json", "runs.parquet", "runs.txt"]:
        assert epochal("runs", "-o", name, "--columns", "run, val/acc").out == f"wrote {name}\n", (
            name
        )
        data = (tmp_path / name).read_bytes()
        if name == "runs.parquet":
            read_table = pytest.importorskip("pyarrow.parquet").read_table
            assert read_table(tmp_path / name)["run"].to_pylist() == [one.name for one in made], (
                name
            )
        else:
            assert made[3].name.encode() in data, name


def test_query_without_matches_has_a_hint(made: list[Path], epochal: Command) -> None:
    done = epochal("runs", "--where", "optim.type = sgd")
    assert done.code == 0
    assert done.out.splitlines() == [
        f"none of the {len(made)} runs below runs matches",
        "  no run has optim.type = sgd: did you mean 'SGD'?",
    ]


def test_invalid_options_are_refused(made: list[Path], epochal: Command) -> None:
    for words, message in [
        (("-o", "runs.xlsx"), "has no known suffix"),
        (("--format", "parquet"), "add -o runs.parquet"),
        (("--format", "csv", "--json"), "contradict each other"),
        (("--limit", "-1"), "--limit: must not be negative, got -1"),
    ]:
        done = epochal("runs", *words)
        assert done.code == 78, words
        assert message in done.err, words


def test_parquet_without_its_package_says_what_to_install(
    made: list[Path], epochal: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    done = epochal("runs", "-o", "runs.parquet")
    assert done.code == 78
    assert "pip install 'epochal[frame]'" in done.err


def test_subfolders_use_the_index_of_all_runs(
    made: list[Path], tmp_path: Path, epochal: Command
) -> None:
    assert len(table(epochal)) == 5
    assert len(table(epochal, "--runs-dir", "runs/store/wide")) == 2
    assert not (tmp_path / "runs" / "store" / ".epochal").exists()
    assert not (tmp_path / "runs" / "store" / "wide" / ".epochal").exists()


def test_renamed_folders_are_found_again(made: list[Path], epochal: Command) -> None:
    assert len(table(epochal)) == 5
    made[0].rename(made[0].parent.parent / "20200101-000000-aaaa")
    names = [line[0] for line in table(epochal)[1:]]
    assert "20200101-000000-aaaa" in names
    assert made[0].name not in names


def test_folder_around_the_folder_of_all_runs_gets_no_index(
    made: list[Path], tmp_path: Path, epochal: Command
) -> None:
    assert len(table(epochal, "--runs-dir", ".")) == 5
    assert not (tmp_path / ".epochal").exists()
    assert len(table(epochal)) == 5
    assert (tmp_path / "runs" / ".epochal" / "index.db").exists()


def test_archived_runs_are_listed_only_on_request(made: list[Path], epochal: Command) -> None:
    name = made[0].name
    epochal("describe", name, "--archive", "--label", "old, paper")
    done = epochal("runs")
    assert name not in done.out
    assert done.out.endswith("\n1 archived run not shown: --archived lists it\n")
    line = next(one for one in epochal("runs", "--archived").out.splitlines() if name in one)
    assert "(archived)" in line
    assert "old, paper" in line
    assert name in epochal("runs", "--where", "archived = true").out
    assert "not shown" not in epochal("runs", "--archived").out
    one = epochal("runs", "--where", "label = old")
    assert one.out.endswith("1 matching run below runs, all archived; --archived lists them\n")
    found = epochal("runs", "--json")
    assert (len(json.loads(found.out)), "1 archived run" in found.err) == (len(made) - 1, True)
    last = json.loads(epochal("runs", "--json", "--archived", "--where", "label = old").out)[0]
    assert (last["labels"], last["archived"]) == (["old", "paper"], True)
    shown = epochal("show", name).out
    assert "  labels   old, paper\n  archived lists hide it" in shown
    told = json.loads(epochal("show", name, "--json").out)
    assert (told["labels"], told["archived"]) == (["old", "paper"], True)
    refused = epochal("runs", "prune", "--archived", "--status", "finished")
    assert 'write --where "archived = true"' in refused.err


def test_archived_runs_are_in_ep_runs_only_on_request(made: list[Path]) -> None:
    change_labels(made[0], is_archived=True, add=["old"])
    assert [len(ep.runs()), len(ep.runs(archived=True))] == [len(made) - 1, len(made)]
    assert [one["label"] for one in ep.runs("label = old", archived=True).rows] == ["old"]
    assert "archived lists them" in repr(ep.runs("label = old"))
