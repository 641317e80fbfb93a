"""The story of a run as its record tells it."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from epochal import durable
from epochal.records import read_run
from epochal.records.mail.story import kind_of, last_lines, tell
from past_runs import RUN, gone, leave_run

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.records.mail import Mailbox


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        ("finished", "max_epochs", "finished"),
        ("stopped", "early_stop", "finished"),
        ("stopped", "diverged", "diverged"),
        ("failed", "exception", "failed"),
        ("failed", "disk_full", "out_of_disk"),
        ("lost", "", "lost"),
        ("interrupted", "user_interrupt", None),
        ("preempted", "preempted", None),
    ],
)
def test_what_an_end_is_worth(status: str, reason: str, kind: str | None) -> None:
    assert kind_of(status, reason) == kind


def test_a_lost_run_was_last_heard_of_by_its_last_sign(box: Mailbox) -> None:
    folder = leave_run(box, gone(), started="2026-11-15T03:00:00.000+00:00", seconds=7500)
    moment = datetime(2026, 11, 15, 5, 5, tzinfo=UTC).timestamp()
    for path in folder.iterdir():
        os.utime(path, (moment, moment))
    story = tell(read_run(folder), "lost", run=RUN, monitor="val/acc", mode="max")
    assert story.seconds == 7500
    assert story.best == 0.9  # of its points, for it left no result
    local = datetime.fromtimestamp(moment).astimezone()
    assert story.why == f"its process is gone, last heard of {local:%b %d, %H:%M}"
    assert (story.step, story.epoch, story.tag) == (3, 1, "digits")
    assert story.log == "one\ntwo"
    assert story.sender["desc"] == "why not"


def test_a_failed_run_tells_its_error_and_the_log_before_it(box: Mailbox) -> None:
    folder = leave_run(box, gone(), status="failed", reason="exception")
    trace = "Traceback (most recent call last):\n  File x\nValueError: torn"
    error = {"exception_type": "ValueError", "message": "torn\nrow", "traceback": f"{trace}\n"}
    durable.write_json(folder / "result.json", {"attempt": 0, "seconds": 4.0, **error})
    (folder / "logs" / "run.log").write_text(f"one\ntwo\n12:00 ERROR conduct: {trace}\n")
    story = tell(read_run(folder), "failed", run=RUN, monitor="val/acc", mode="max")
    assert story.why == "ValueError: torn"
    assert story.traceback.strip() == trace
    assert story.log == "one\ntwo"
    assert (story.seconds, story.best) == (4.0, None)


def test_a_monitor_without_points_has_no_best_value(box: Mailbox) -> None:
    folder = leave_run(box, gone())
    assert tell(read_run(folder), "lost", run=RUN, monitor="val/loss", mode="min").best is None
    (folder / "metrics.bin").unlink()
    assert tell(read_run(folder), "lost", run=RUN, monitor="val/acc", mode="max").best is None


def test_a_traceback_with_a_secret_is_found_in_a_log_that_keeps_none(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("one\nERROR\nTraceback: login with api_key=<redacted> failed\n")
    assert last_lines(log, without="Traceback: login with api_key=abc123 failed\n") == "one"


def test_the_last_lines_are_few(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_bytes(b"\xff" * 100_000 + b"".join(b"line %d\n" % i for i in range(100)))
    assert last_lines(log).splitlines() == [f"line {i}" for i in range(80, 100)]
    assert last_lines(tmp_path) == last_lines(log)
    assert last_lines(tmp_path / "gone") == ""
    (tmp_path / "empty").mkdir()
    assert last_lines(tmp_path / "empty") == ""
