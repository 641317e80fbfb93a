"""Tests of ``epochal runs prune``."""

from __future__ import annotations

import json
import math
import os
import sys
from typing import TYPE_CHECKING

import pytest

from indexed import record_run

if TYPE_CHECKING:
    from pathlib import Path

    from small_project import Command


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Four records: finished, failed, running, and finished with a better result."""
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "runs"
    return [
        record_run(root, accuracy=0.7),
        record_run(root, accuracy=0.1, status="failed"),
        record_run(root, status="running"),
        record_run(root, tag="wide", accuracy=0.9),
    ]


def left(made: list[Path]) -> list[int]:
    return [i for i, folder in enumerate(made) if folder.exists()]


def test_runs_to_delete_are_shown_and_kept_without_yes(made: list[Path], epochal: Command) -> None:
    done = epochal("runs", "prune", "--status", "failed")
    assert done.code == 0
    header, line = done.out.splitlines()[:2]
    assert header.split() == ["run", "project", "tag", "status", "age", "best", "size"]
    assert line.split()[:4] == [made[1].name, "store", "shop", "failed"]
    assert "deletes 1 run: frees 1" in done.out
    assert done.out.endswith("nothing was deleted; add --yes to do it\n")
    assert left(made) == [0, 1, 2, 3]


def test_yes_deletes(made: list[Path], epochal: Command) -> None:
    done = epochal("runs", "prune", "--status", "failed", "--yes")
    assert "deleted 1 run, freed 1" in done.out
    assert left(made) == [0, 2, 3]
    assert len(json.loads(epochal("runs", "--json").out)) == 3
    assert "nothing to delete" in epochal("runs", "prune", "--status", "failed", "--yes").out


def test_read_only_folder_is_an_error(
    made: list[Path], epochal: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    for words in (("--status", "failed"), ("--status", "failed", "--yes", "--json")):
        done = epochal("runs", "prune", *words)
        assert done.code == 74
        first, hint = done.err.splitlines()
        assert first.endswith(": no write permission, so nothing was deleted")
        assert hint == "  ask for write permission"
    assert left(made) == [0, 1, 2, 3]


def test_running_runs_are_kept(made: list[Path], epochal: Command) -> None:
    done = epochal("runs", "prune", "--where", "step >= 0", "--yes")
    assert done.code == 0
    assert left(made) == [2]
    lines = done.out.splitlines()
    assert lines[lines.index("kept:") + 2].split() == [made[2].name, "shop", "is", "running"]


def test_age_rank_and_query_select_runs(made: list[Path], epochal: Command) -> None:
    assert "nothing to delete" in epochal("runs", "prune", "--older", "1d", "--yes").out
    epochal("runs", "prune", "--keep-best", 1, "--yes")
    assert left(made) == [0, 2, 3]
    epochal("runs", "prune", "wide", "--where", "val/acc > 0.5", "--yes")
    assert left(made) == [0, 2]


def test_rank_keeps_runs_without_a_best_value(
    made: list[Path], epochal: Command, tmp_path: Path
) -> None:
    lost = record_run(tmp_path / "runs", tag="wide", accuracy=math.nan)
    done = epochal("runs", "prune", "--keep-best", 1, "--yes")
    assert left([*made, lost]) == [0, 2, 3, 4]
    assert "has no best value" in done.out
    epochal("runs", "prune", "wide", "--keep-best", 1, "--yes")
    assert left([*made, lost]) == [0, 2, 3]


def test_only_checkpoints_are_deleted_on_request(made: list[Path], epochal: Command) -> None:
    done = epochal("runs", "prune", "--where", "val/acc > 0.5", "--checkpoints", "--yes")
    assert "deleted the checkpoints of 2 runs, freed 2" in done.out
    assert left(made) == [0, 1, 2, 3]
    assert not (made[0] / "checkpoints").exists()
    assert (made[1] / "checkpoints").exists()
    again = epochal("runs", "prune", "--where", "val/acc > 0.5", "--checkpoints", "--yes")
    assert "nothing to delete" in again.out
    assert epochal("runs").code == 0
    assert epochal("show", made[0]).code == 0


def test_parents_of_other_runs_are_kept(made: list[Path], epochal: Command) -> None:
    root = made[0].parents[2]
    record_run(root, tag="wide", parent={"run": made[0].name, "kind": "test"})
    done = epochal("runs", "prune", "--where", "tag = shop and status = finished", "--yes")
    assert "came from it (test)" in done.out
    assert left(made) == [0, 1, 2, 3]


def test_checkpoints_elsewhere_are_named(made: list[Path], epochal: Command) -> None:
    path = made[1] / "config" / "provenance.json"
    provenance = json.loads(path.read_text()) | {"checkpoint.dir": [{"value": "/scratch/a"}]}
    path.write_text(json.dumps(provenance))
    out = epochal("runs", "prune", "--status", "failed").out
    assert f"{made[1].name} has checkpoints in /scratch/a: they are kept" in out


def test_deleting_asks_for_confirmation(
    made: list[Path], epochal: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions: list[str] = []
    replies = iter(["", "y"])
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda text: questions.append(text) or next(replies))
    for expected in ([0, 1, 2, 3], [0, 2, 3]):
        epochal("runs", "prune", "--status", "failed")
        assert left(made) == expected
    assert questions == ["delete 1 run? [y/N] "] * 2


def test_end_of_input_confirms_nothing(
    made: list[Path], epochal: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(text: str) -> str:
        raise EOFError

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", end)
    done = epochal("runs", "prune", "--status", "failed")
    assert (done.code, left(made)) == (0, [0, 1, 2, 3])
    assert done.out.endswith("\nnothing was deleted\n")


def test_run_that_starts_meanwhile_is_kept(
    made: list[Path], epochal: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(text: str) -> str:
        status = made[2] / "status.json"
        (made[1] / "status.json").write_bytes(status.read_bytes())
        return "yes"

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", start)
    done = epochal("runs", "prune", "--where", "val/acc < 0.75 and val/acc != 0.5")
    assert done.code == 74
    assert "is running" in done.err
    assert "deleted 1 run," in done.out
    assert left(made) == [1, 2, 3]


def test_json(made: list[Path], epochal: Command) -> None:
    facts = json.loads(epochal("runs", "prune", "--where", "step >= 0", "--json").out)
    assert [one["id"] for one in facts["runs"]] == [made[i].name for i in (0, 1, 3)]
    assert facts["stays"] == [{"id": made[2].name, "because_it": "is running"}]
    assert facts["bytes"] >= 300_000
    assert facts["deleted"] is False
    assert left(made) == [0, 1, 2, 3]
    facts = json.loads(epochal("runs", "prune", "--status", "failed", "--json", "--yes").out)
    assert facts["deleted"] is True
    assert facts["failures"] == []
    assert left(made) == [0, 2, 3]


def test_mistakes_delete_nothing(made: list[Path], epochal: Command) -> None:
    for words, message in [
        (("prune",), "does not say which runs to delete"),
        (("prune", "--yes"), "does not say which runs to delete"),
        (("prune", "--checkpoints"), "does not say which runs to delete"),
        (("prune", "--older", "soon"), "--older: must be a duration, got 'soon'"),
        (("prune", "--older", "3ep"), "write 30s, 20min, 2h, 7d or 4w"),
        (("prune", "--keep-last", "0"), "--keep-last: must be at least 1, got 0"),
        (("prune", "--status", "failed", "--limit", "3"), "--limit: is for lists of runs"),
        (("prune", "--status", "failed", "--sort", "step"), "--sort: is for lists of runs"),
        (("prune", "--where", "lrr > 1"), "unknown name 'lrr'"),
        (("--older", "3d"), "write epochal runs prune --older ..."),
        (("--yes",), "--yes: is for deleting runs"),
    ]:
        done = epochal("runs", *words)
        assert done.code == 78, words
        assert message in done.err, words
        assert left(made) == [0, 1, 2, 3], words
