"""Runs that ended without a mail: each gets one, posted by another process."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING

import pytest

from epochal import durable
from epochal.records.mail.lost_run_mail import (
    ExpectedMail,
    cancel_expected,
    expect_mail,
    find_mailbox,
    is_expected,
    post_end,
    post_lost_runs,
)
from epochal.records.mail.outbox import read_outbox
from failing_disk import read_only_disk
from past_runs import RUN, change, elsewhere, expect_from, gone, here, leave_run

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.records.mail.mailbox import Mailbox

HOOK = {"type": "webhook", "url": "http://localhost:1"}


def test_a_killed_run_gets_one_mail(box: Mailbox) -> None:
    owner = gone()
    leave_run(box, owner)
    expect_from(box, owner, specs=[HOOK])
    (mail,) = post_lost_runs(box)
    assert mail.kind == "lost"
    assert mail.subject.startswith("lost: digits a3f9, ")
    assert "best val/acc 0.9, its process died" in mail.subject
    assert post_lost_runs(box) == []
    assert box.mails() == [mail]
    assert [one.spec for one in read_outbox(box)] == [HOOK]
    box.delete(box.mails())
    assert post_lost_runs(box) == []  # a deleted mail does not come back


def test_concurrent_processes_post_one_mail(box: Mailbox) -> None:
    owner = gone()
    leave_run(box, owner)
    expect_from(box, owner)
    gate, opened = os.pipe()
    children = []
    for _ in range(8):
        child = os.fork()
        if not child:
            os.close(opened)
            os.read(gate, 1)  # until all have started
            os._exit(len(post_lost_runs(box)))
        children.append(child)
    os.close(opened)
    os.close(gate)
    posted = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert sorted(posted) == [0] * 7 + [1]
    assert len(box.mails()) == 1


def test_a_living_run_is_left_alone(box: Mailbox) -> None:
    leave_run(box, here())
    note = expect_from(box, here())
    assert post_lost_runs(box) == []
    assert note.exists()


def test_a_run_that_another_process_resumed_is_left_alone(box: Mailbox) -> None:
    leave_run(box, here())
    note = expect_from(box, gone())
    assert post_lost_runs(box) == []
    assert note.exists()


def test_the_mail_of_a_run_that_died_after_its_last_status_is_posted(box: Mailbox) -> None:
    table = {
        ("finished", "max_epochs"): ["finished"],
        ("failed", "exception"): ["failed"],
        ("failed", "disk_full"): ["out_of_disk"],
        ("diverged", "diverged"): ["diverged"],
        ("preempted", "preempted"): [],
        ("interrupted", "user_interrupt"): [],
    }
    found = {}
    for status, reason in table:
        leave_run(box, gone(), status=status, reason=reason, ended="2026-11-15T05:00:00+00:00")
        note = expect_from(box, gone())
        found[status, reason] = [mail.kind for mail in post_lost_runs(box)]
        assert not note.exists()
    assert found == table


def test_a_living_run_posts_its_own_mail(box: Mailbox) -> None:
    leave_run(box, here(), status="finished", reason="max_epochs")
    expect_from(box, here())
    assert post_lost_runs(box) == []


def test_a_run_that_died_before_its_first_status_is_lost(box: Mailbox) -> None:
    folder = leave_run(box, gone())
    (folder / "status.json").unlink()
    expect_from(box, gone())
    assert [mail.kind for mail in post_lost_runs(box)] == ["lost"]


def beat(folder: Path, seconds_ago: float) -> None:
    path = folder / "heartbeat.json"
    path.write_text('{"beat_seconds": 15.0}')
    moment = time.time() - seconds_ago
    for sign in folder.iterdir():
        os.utime(sign, (moment, moment))


@pytest.mark.parametrize(("seconds", "is_lost"), [(40, False), (70, True)])
def test_a_run_of_another_machine_is_lost_by_its_silence(
    box: Mailbox, seconds: float, is_lost: bool
) -> None:
    beat(leave_run(box, elsewhere()), seconds)
    expect_from(box, elsewhere())
    assert bool(post_lost_runs(box)) is is_lost


@pytest.mark.parametrize(("seconds", "is_lost"), [(40, False), (700, True)])
def test_a_supervisor_of_another_machine_has_more_time(
    box: Mailbox, seconds: float, is_lost: bool
) -> None:
    beat(leave_run(box, elsewhere()), seconds)
    expect_from(box, elsewhere(), is_supervised=True)
    assert bool(post_lost_runs(box)) is is_lost


def test_only_a_living_supervisor_reports_its_run(box: Mailbox) -> None:
    leave_run(box, gone(), status="failed", reason="exception")
    note = expect_from(box, here(), is_supervised=True)
    assert post_lost_runs(box) == []
    change(note, owner=gone())
    assert [mail.kind for mail in post_lost_runs(box)] == ["failed"]


def test_the_owner_of_a_note_is_the_run_or_its_supervisor(box: Mailbox) -> None:
    expect_mail(box, ExpectedMail(run=RUN))
    (note,) = (box.folder / "expected").iterdir()
    assert f'"pid": {os.getpid()}' in note.read_text()
    expect_mail(box, ExpectedMail(run=RUN, is_supervised=True))
    assert f'"pid": {os.getppid()}' in note.read_text()


def test_the_note_of_a_deleted_run_is_removed(box: Mailbox) -> None:
    shutil.rmtree(leave_run(box, gone()))
    note = expect_from(box, gone())
    assert post_lost_runs(box) == []
    assert not note.exists()


def test_damaged_notes_are_removed(box: Mailbox) -> None:
    folder = box.make_folder("expected")
    for index, text in enumerate(["{", "{}", '{"run": 3}', '{"run": ""}']):
        (folder / f"{index}.json").write_text(text)
    assert post_lost_runs(box) == []
    assert list(folder.iterdir()) == []


def test_a_note_in_a_read_only_folder_is_left_for_others(
    box: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_run(box, gone())
    note = expect_from(box, gone())
    with monkeypatch.context() as patch:
        patch.setattr(durable.system, "operations", read_only_disk())
        assert post_lost_runs(box) == []
    assert note.exists()
    assert len(post_lost_runs(box)) == 1


def test_a_supervisor_posts_the_end_of_its_run(box: Mailbox) -> None:
    folder = leave_run(box, gone())
    expect_from(box, here(), specs=[HOOK], is_supervised=True)
    found = find_mailbox(folder)
    assert found is not None
    assert found[1] == RUN
    mail, deliveries = post_end(*found, kind="gave_up", why="it failed 3 times")
    assert mail.subject.endswith("best val/acc 0.9, it failed 3 times")
    assert read_outbox(box) == deliveries
    assert [one.spec for one in deliveries] == [HOOK]
    assert post_lost_runs(box) == []
    assert not is_expected(*found)


def test_a_folder_without_a_mailbox_above_it_has_none(tmp_path: Path) -> None:
    assert find_mailbox(tmp_path / "shop" / "run") is None


def test_a_cancelled_note_is_removed(box: Mailbox) -> None:
    cancel_expected(box, RUN)
    expect_mail(box, ExpectedMail(run=RUN))
    assert is_expected(box, RUN)
    cancel_expected(box, RUN)
    assert not is_expected(box, RUN)
