"""Tests of ``epochal runs``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

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
    assert header.split()[:5] == ["run", "project", "tag", "runner", "status"]
    assert [line.split()[3:5] for line in lines[:3]] == [
        ["train", "finished"],
        ["test", "finished"],
        ["train", "failed"],
    ]
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


def test_metric_that_decides_comes_first(shop: Path, epochal: Command) -> None:
    metrics = "metrics=[{type: mean, of: out.logits, name: zeal}]"
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


def test_runs_can_be_picked(history: list[Path], epochal: Command) -> None:
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


def test_no_runs_say_how_to_make_one(shop: Path, epochal: Command) -> None:
    done = epochal("runs")
    assert done.code == 0
    assert "`epochal run FILE` makes one" in done.out
    assert json.loads(epochal("runs", "--json").out) == []


def test_other_folder_of_runs(history: list[Path], shop: Path, epochal: Command) -> None:
    (shop / "runs").rename(shop / "kept")
    assert json.loads(epochal("runs", "--json").out) == []
    assert len(json.loads(epochal("runs", "--json", "--runs-dir", "kept").out)) == 3


@pytest.mark.parametrize("name", ["run.json", "status.json", "result.json"])
@pytest.mark.parametrize(
    "content",
    [None, b"", b"[]", b"\xff{", b'{"status": 3, "metrics": 4, "best": [1], "started": 5}'],
)
def test_damaged_records_are_listed(
    shop: Path, epochal: Command, name: str, content: bytes | None
) -> None:
    epochal("run", "config.yaml", "--fast")
    path = run_folders(shop)[0] / name
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    assert epochal("runs").code == 0
    assert len(json.loads(epochal("runs", "--json").out)) == 1


def test_runs_that_were_resumed_say_how_often(history: list[Path], epochal: Command) -> None:
    assert "resumed" not in epochal("runs").out
    status = json.loads((history[0] / "status.json").read_text())
    (history[0] / "status.json").write_text(json.dumps(status | {"attempt": 2}))
    out = epochal("runs").out
    assert "resumed" in out
    assert " 2x " in out
