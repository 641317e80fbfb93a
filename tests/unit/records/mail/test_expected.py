"""Runs that ended without a word: found by whoever looks, and told once."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest

from epochal.records.mail.expected import (
    Expected,
    conclude,
    expect,
    find_box,
    find_silent,
    is_expected,
    settle,
)
from epochal.records.mail.outbox import read_outbox
from past_runs import RUN, change, elsewhere, expect_from, gone, here, leave_run

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.records.mail import Mailbox

HOOK = {"type": "webhook", "url": "http://localhost:1"}


def subjects(box: Mailbox) -> list[str]:
    return [mail.subject for mail in box.mails()]


def test_a_killed_run_gets_one_mail_however_often_somebody_looks(box: Mailbox) -> None:
    owner = gone()
    leave_run(box, owner)
    expect_from(box, owner, specs=[HOOK])
    (posted,) = find_silent(box)
    assert posted.mail.kind == "lost"
    assert posted.mail.subject.startswith("lost: digits a3f9, ")
    assert "best val/acc 0.9, its process is gone" in posted.mail.subject
    assert find_silent(box) == []
    assert box.mails() == [posted.mail]
    assert read_outbox(box) == posted.parcels
    box.delete(box.mails())
    assert find_silent(box) == []  # nor does it come back when it was deleted


def test_many_lookers_post_one_mail(box: Mailbox) -> None:
    owner = gone()
    leave_run(box, owner)
    expect_from(box, owner)
    gate, opened = os.pipe()
    children = []
    for _ in range(8):
        child = os.fork()
        if not child:
            os.close(opened)
            os.read(gate, 1)  # until all are there
            os._exit(len(find_silent(box)))
        children.append(child)
    os.close(opened)
    os.close(gate)
    posted = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert sorted(posted) == [0] * 7 + [1]
    assert len(box.mails()) == 1


def test_a_run_at_work_is_left_alone(box: Mailbox) -> None:
    leave_run(box, here())
    note = expect_from(box, here())
    assert find_silent(box) == []
    assert note.exists()


def test_a_run_that_another_process_goes_on_with_is_left_alone(box: Mailbox) -> None:
    leave_run(box, here())
    note = expect_from(box, gone())
    assert find_silent(box) == []
    assert note.exists()


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        ("finished", "max_epochs", "finished"),
        ("failed", "exception", "failed"),
        ("failed", "disk_full", "out_of_disk"),
        ("stopped", "diverged", "diverged"),
        ("preempted", "preempted", None),
        ("interrupted", "user_interrupt", None),
    ],
)
def test_a_run_that_died_before_it_could_write_its_mail_is_told_of(
    box: Mailbox, status: str, reason: str, kind: str | None
) -> None:
    leave_run(box, gone(), status=status, reason=reason, ended="2026-11-15T05:00:00+00:00")
    note = expect_from(box, gone())
    find_silent(box)
    assert [mail.kind for mail in box.mails()] == ([] if kind is None else [kind])
    assert not note.exists()


def test_a_run_that_writes_its_mail_itself_is_not_told_of(box: Mailbox) -> None:
    leave_run(box, here(), status="finished", reason="max_epochs")
    expect_from(box, here())
    assert find_silent(box) == []


def test_a_run_that_died_before_its_first_word_is_lost(box: Mailbox) -> None:
    folder = leave_run(box, gone())
    (folder / "status.json").unlink()
    expect_from(box, gone())
    (posted,) = find_silent(box)
    assert posted.mail.kind == "lost"


def beat(folder: Path, seconds_ago: float) -> None:
    path = folder / "heartbeat.json"
    path.write_text('{"beat_seconds": 15.0}')
    moment = time.time() - seconds_ago
    os.utime(path, (moment, moment))


@pytest.mark.parametrize(("seconds", "is_lost"), [(5, False), (40, True)])
def test_a_run_of_another_machine_is_lost_by_its_silence(
    box: Mailbox, seconds: float, is_lost: bool
) -> None:
    beat(leave_run(box, elsewhere()), seconds)
    expect_from(box, elsewhere())
    assert bool(find_silent(box)) is is_lost


@pytest.mark.parametrize(("seconds", "is_lost"), [(40, False), (700, True)])
def test_a_supervisor_of_another_machine_has_more_time(
    box: Mailbox, seconds: float, is_lost: bool
) -> None:
    beat(leave_run(box, elsewhere()), seconds)
    expect_from(box, elsewhere(), is_supervised=True)
    assert bool(find_silent(box)) is is_lost


def test_while_its_supervisor_lives_nobody_else_judges(box: Mailbox) -> None:
    leave_run(box, gone(), status="failed", reason="exception")
    note = expect_from(box, here(), is_supervised=True)
    assert find_silent(box) == []
    change(note, owner=gone())
    assert [posted.mail.kind for posted in find_silent(box)] == ["failed"]


def test_the_process_that_tells_is_the_runs_own_or_its_supervisors(box: Mailbox) -> None:
    expect(box, Expected(run=RUN))
    (note,) = (box.folder / "expected").iterdir()
    assert f'"pid": {os.getpid()}' in note.read_text()
    expect(box, Expected(run=RUN, is_supervised=True))
    assert f'"pid": {os.getppid()}' in note.read_text()


def test_a_deleted_run_is_forgotten(box: Mailbox) -> None:
    shutil.rmtree(leave_run(box, gone()))
    note = expect_from(box, gone())
    assert find_silent(box) == []
    assert not note.exists()


@pytest.mark.parametrize("text", ["{", "{}", '{"run": 3}', '{"run": ""}'])
def test_a_damaged_note_is_forgotten(box: Mailbox, text: str) -> None:
    note = box.make_folder("expected") / "x.json"
    note.write_text(text)
    assert find_silent(box) == []
    assert not note.exists()


def test_a_note_that_a_killed_looker_took_is_taken_over(box: Mailbox) -> None:
    leave_run(box, gone())
    note = expect_from(box, gone())
    taken = note.rename(note.with_name(f".{note.stem}.1-ab.claimed"))
    assert find_silent(box) == []  # it may still be at work
    moment = time.time() - 3600
    os.utime(taken, (moment, moment))
    assert len(find_silent(box)) == 1
    assert not list((box.folder / "expected").iterdir())


def test_who_cannot_write_there_leaves_it_to_others(
    box: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_run(box, gone())
    note = expect_from(box, gone())

    def refuse(*_: Any) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr("epochal.durable.rename", refuse)
    assert find_silent(box) == []
    assert note.exists()
    monkeypatch.undo()
    assert len(find_silent(box)) == 1


def test_a_supervisor_says_how_it_ended(box: Mailbox) -> None:
    folder = leave_run(box, gone())
    expect_from(box, here(), specs=[HOOK], is_supervised=True)
    found = find_box(folder)
    assert found is not None
    posted = conclude(*found, kind="gave_up", why="it failed 3 times")
    assert posted.mail.subject.endswith("best val/acc 0.9, it failed 3 times")
    assert [parcel.spec for parcel in posted.parcels] == [HOOK]
    assert find_silent(box) == []
    assert find_box(folder) is None


def test_what_is_settled_is_not_expected(box: Mailbox) -> None:
    settle(box, RUN)
    expect(box, Expected(run=RUN))
    assert is_expected(box, RUN)
    settle(box, RUN)
    assert not is_expected(box, RUN)
