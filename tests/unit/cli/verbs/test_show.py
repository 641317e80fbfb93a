"""Tests of ``epochal show``."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from epochal.config import load
from small_project import Command, run_folders, tree, write

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def trained(shop: Path, epochal: Command) -> Path:
    words = ("model.dropout=0.2", "--variant", "long", "--desc", "to see")
    assert epochal("run", "config.yaml", *words).code == 0
    return run_folders(shop)[0]


def test_overview_shows_status_device_and_metrics(trained: Path, epochal: Command) -> None:
    done = epochal("show", "last")
    assert done.code == 0
    for text in (
        f"shop, variant long  ({trained.name})",
        "  to see",
        "  runner   train",
        "  status   finished, max_epochs, epoch 3, step 18",
        "  device   cpu",
        "  val/acc",
        "--explain KEY",
    ):
        assert text in done.out


def test_failure_is_shown_with_its_message_and_full_traceback(shop: Path, epochal: Command) -> None:
    epochal("run", "config.yaml", "task.type=shop.parts.Stumbling")
    out = epochal("show", "last").out
    assert "  status   failed, exception" in out
    assert "  error    KeyError: 'the shelf is empty'" in out
    log = epochal("show", "last", "--log").out
    assert "Traceback (most recent call last)" in log
    assert 'raise KeyError("the shelf is empty")' in log


def test_values_are_explained(trained: Path, epochal: Command) -> None:
    for key, lines in [
        ("model.dropout", ["model.dropout = 0.2", "set by command line: model.dropout=0.2"]),
        ("optim.lr", ["optim.lr = 0.05", "set in config.yaml:6:7", "over 0.1 from base.yaml:1:24"]),
        ("optim.momentum", ["optim.momentum = 0.9", "set in base.yaml:1:39 (base)"]),
        ("train.for", ['train.for = "3ep"', "(variant)", 'over "2ep" from config.yaml:7:14']),
        ("task.batch_size", ["task.batch_size = 4", "default of shop.parts.Points"]),
        ("log.level", ['log.level = "info"', "default of section 'log'"]),
        ("model", ["model.type", "model.dropout = 0.2"]),
    ]:
        done = epochal("show", "last", "--explain", key)
        assert done.code == 0, key
        for line in lines:
            assert line in done.out, key


def test_explanation_as_json_has_the_same_origins(trained: Path, epochal: Command) -> None:
    origins = json.loads(epochal("show", "last", "--explain", "optim.lr", "--json").out)
    assert [origin["value"] for origin in origins["optim.lr"]] == [0.05, 0.1]
    section = json.loads(epochal("show", "last", "--explain", "optim", "--json").out)
    assert {"optim.lr", "optim.type", "optim.momentum"} <= section.keys()


def test_unknown_key_suggests_the_closest_one(trained: Path, epochal: Command) -> None:
    done = epochal("show", "last", "--explain", "optim.lrr")
    assert done.code == 74
    assert "did you mean 'optim.lr'?" in done.err


def test_config_can_be_printed_and_loaded(trained: Path, shop: Path, epochal: Command) -> None:
    text = epochal("show", "last", "--config").out
    (shop / "again.yaml").write_text(text)
    assert load(shop / "again.yaml").root.to_plain()["model"]["dropout"] == 0.2


def test_json_holds_everything(trained: Path, epochal: Command) -> None:
    shown = json.loads(epochal("show", trained, "--json").out)
    assert shown["status"]["status"] == "finished"
    assert shown["run"]["desc"] == "to see"
    assert shown["config"]["train"]["for"] == "3ep"
    assert "val/acc" in shown["metrics"]
    assert shown["damage"] == []
    assert {"start-up/building", "steps", "data wait", "evaluation", "saving"} <= set(
        shown["times"]
    )


def test_metric_that_is_always_nan_is_shown(shop: Path, epochal: Command) -> None:
    epochal("run", "config.yaml", "task.type=shop.parts.NanLoss")
    (line,) = [line for line in epochal("show", "last").out.splitlines() if "  train/loss " in line]
    assert line.split()[1:4] == ["nan", "nan", "nan"]


def test_damaged_records_are_shown(trained: Path, epochal: Command) -> None:
    names = (
        *("status.json", "result.json", "run.json", "metrics.bin", "series.jsonl", "events.jsonl"),
        *("config/provenance.json", "config/expanded.yaml", "README.md", "logs/run.log"),
    )
    wrong_types = (
        b'{"status": 3, "device": 4, "metrics": 3, "seconds": "x", "message": 3, "step": "a"}'
    )
    for name in names:
        path = trained / name
        intact = path.read_bytes()
        for content in (b"", b"[1]", b"\xff\xfe{\x00", wrong_types, intact[:-7]):
            path.write_bytes(content)
            assert epochal("show", trained).code == 0, name
            json.loads(epochal("show", trained, "--json").out)
            assert epochal("show", trained, "--config").code == 0, name
            assert epochal("show", trained, "--log").code == 0, name
            assert epochal("show", trained, "--explain", "optim.lr").code in (0, 74), name
        path.unlink()
        assert epochal("show", trained).code == 0, name
        assert epochal("show", trained, "--log").code == 0, name
        path.write_bytes(intact)


def test_showing_changes_nothing_but_the_index(trained: Path, shop: Path, epochal: Command) -> None:
    before = tree(shop)
    for words in ((), ("--json",), ("--log",), ("--config",), ("--explain", "optim"), ("--plot",)):
        epochal("show", "last", *words)
    after = tree(shop)
    assert {name for name in after if "index.db" not in name} == before.keys()
    assert all(after[name] == before[name] for name in before)


def test_times_of_a_killed_run_come_from_its_status(trained: Path, epochal: Command) -> None:
    (trained / "result.json").unlink()
    status = json.loads((trained / "status.json").read_text())
    status["times"] = {"steps": 30.0, "data wait": 20.0, "damaged": "?"}
    (trained / "status.json").write_text(json.dumps(status))
    out = epochal("show", "last").out
    assert "  data wait    40%  20.0 s" in out
    assert "the run waited for data 40% of the time" in out


def test_folds_are_shown_with_their_mean_and_spread(shop: Path, epochal: Command) -> None:
    assert epochal("run", "config.yaml", "train.folds=3").code == 0
    out = epochal("show", "last").out
    for text in ("fold    status", "1       finished", "3       finished", "mean  ", "spread  "):
        assert text in out
    assert "damage" not in out
    best = json.loads((run_folders(shop)[0] / "result.json").read_text())["best"]
    assert f"  best     val/acc {best:.4g}, the mean over its folds" in out
    found = json.loads(epochal("show", "last", "--json").out)
    assert [fold.rpartition("/")[2] for fold in found["folds"]] == ["1", "2", "3"]


def test_reason_for_stopping_is_shown_by_run_show_and_runs(shop: Path, epochal: Command) -> None:
    done = epochal("run", "config.yaml", "train.until=val/acc >= 0")
    assert "finished (target): 1 epoch, 6 steps" in done.out
    assert "  status   finished, target, epoch 1, step 6" in epochal("show", "last").out
    assert "finished  target" in epochal("runs").out


def test_metrics_are_plotted_in_the_terminal(trained: Path, epochal: Command) -> None:
    out = epochal("show", "last", "--plot").out
    assert f"shop ({trained.name}): train/acc, val/acc" in out
    assert "┤" in out
    assert "train/loss" in epochal("show", "last", "--plot", "train/l*").out
    done = epochal("show", "last", "--plot", "val/ac")
    assert done.code == 74
    assert "did you mean 'val/acc'?" in done.err
    other = shutil.copytree(trained, trained.with_name("20200101-000000-abcd"))
    assert "2 runs: val/acc" in epochal("show", trained.name, other, "--plot").out
    done = epochal("show", trained.name, other)
    assert done.code == 78
    assert "show takes one run" in done.err
    assert "--plot plots them together" in done.err


def test_metrics_are_plotted_as_a_png_file(trained: Path, shop: Path, epochal: Command) -> None:
    pytest.importorskip("matplotlib")
    assert "written to curves.png" in epochal("show", "last", "--png", "curves.png").out
    assert (shop / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_every_verb_finds_the_runs_of_the_project_file(
    shop: Path, epochal: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(shop / "pyproject.toml", '[tool.epochal]\nname = "store"\nruns_dir = "out/all"\n')
    assert epochal("run", "config.yaml", "--fast", "--name", "wide").code == 0
    (folder,) = (shop / "out" / "all" / "store" / "wide").iterdir()
    monkeypatch.chdir(shop / "shop")
    table = {
        ("runs",): "wide",
        ("show", "wide"): folder.name,
        ("show", "last", "--explain", "record.log_dir"): "out/all",
        ("test", "wide"): f"of {folder.name}",
        ("describe", "last"): "wide",
        ("diff", "last", "wide"): "nothing differs",
        ("resume", "wide", "train.for=2ep"): "2 epochs",
        ("index",): "2 runs",
    }
    for words, shown in table.items():
        done = epochal(*words)
        assert (done.code, shown in done.out) == (0, True), (words, done)
    assert not (shop / "runs").exists()
    assert not (shop / "shop" / "runs").exists()
    monkeypatch.chdir(shop)
    assert epochal("run", "config.yaml", "--fast", "record.log_dir=mine").code == 0
    assert (shop / "mine" / "store").is_dir()
