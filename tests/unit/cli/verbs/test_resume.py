"""Tests of ``epochal resume``; resuming itself is tested with whole runs elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from epochal.engine import RunResult

if TYPE_CHECKING:
    from pathlib import Path

    from small_project import Command


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The arguments of calls, which do nothing."""
    found: list[dict[str, Any]] = []

    def resume(run: str, **wanted: Any) -> RunResult:
        found.append({"run": run, **wanted})
        return RunResult(status="finished", reason="max_epochs", exit_code=3)

    monkeypatch.setattr("epochal.experiment.run.resume", resume)
    return found


def test_words_and_options_become_choices(
    shop: Path, epochal: Command, asked: list[dict[str, Any]]
) -> None:
    words = ("--from", "best", "--device", "cpu", "--allow-changed", "--runs-dir", "here")
    done = epochal("resume", "2026", "train.for=3ep", *words, "log.level=debug")
    assert done.code == 3
    (wanted,) = asked
    assert (wanted["run"], str(wanted["runs_dir"])) == ("2026", "here")
    assert wanted["overrides"] == ["train.for=3ep", "log.level=debug"]
    assert (wanted["resume_from"], wanted["device"]) == ("best", "cpu")
    assert wanted["allow_changed"]


def test_newest_checkpoint_is_the_default(
    shop: Path, epochal: Command, asked: list[dict[str, Any]]
) -> None:
    epochal("resume", "last")
    assert asked[0]["resume_from"] is None
    assert not asked[0]["allow_changed"]


def test_run_must_be_named(shop: Path, epochal: Command) -> None:
    done = epochal("resume")
    assert done.code == 2
    assert done.err.endswith("error: the following arguments are required: RUN\n")
