"""What commands on runs do for the mailbox, and that they never do more than that."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from epochal.cli import attend as module
from epochal.cli.attend import attend, attend_after
from epochal.records.mail import Mail, Mailbox, Story, compose
from epochal.records.mail.outbox import pack, read_outbox
from mail_servers import http_server
from past_runs import RUN, expect_from, gone, leave_run

if TYPE_CHECKING:
    from small_project import Command


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mailbox:
    monkeypatch.chdir(tmp_path)
    return Mailbox(Path("runs"))


@pytest.fixture
def mail() -> Mail:
    return compose(Story(kind="failed", tag="digits", run=RUN))


def words(verb: str = "runs", **more: object) -> argparse.Namespace:
    return argparse.Namespace(verb=verb, runs_dir=Path("runs"), **more)


@pytest.mark.parametrize("verb", ["runs", "show"])
def test_a_command_that_looks_at_runs_tells_of_lost_ones_once(
    box: Mailbox, epochal: Command, verb: str
) -> None:
    leave_run(box, gone())
    expect_from(box, gone())
    for _ in range(3):
        assert epochal(verb, *(["last"] if verb == "show" else [])).code == 0
    assert [mail.kind for mail in box.mails()] == ["lost"]


def test_the_next_command_sends_what_is_due(box: Mailbox, mail: Mail) -> None:
    with http_server() as hook:
        pack(mail, [{"type": "webhook", "url": hook.url}], box)
        attend(box.root)
    assert len(hook.bodies) == 1
    assert read_outbox(box) == []


def test_what_is_not_due_is_left_alone(box: Mailbox, mail: Mail) -> None:
    with http_server(500) as hook:
        pack(mail, [{"type": "webhook", "url": hook.url}], box)
        attend(box.root)
        attend(box.root)  # only later, not at each command
    assert len(hook.bodies) == 1
    assert len(read_outbox(box)) == 1


def test_a_server_that_hangs_holds_up_no_command(
    box: Mailbox, mail: Mail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PATIENCE_SECONDS", 0.1)
    with http_server(0) as hook:
        pack(mail, [{"type": "webhook", "url": hook.url}], box)
        attend(box.root)
        assert len(read_outbox(box)) == 1


def test_where_there_is_no_mailbox_nothing_is_made(box: Mailbox, tmp_path: Path) -> None:
    attend(box.root)
    attend_after(words())
    assert not list(tmp_path.iterdir())


def test_a_mailbox_that_cannot_be_read_breaks_no_command(box: Mailbox, epochal: Command) -> None:
    box.root.mkdir()
    (box.root / ".epochal").mkdir()
    box.folder.mkdir()
    (box.folder / "inbox").write_text("a file")
    (box.folder / "outbox").symlink_to("outbox")
    assert epochal("runs").code == 0


def test_unread_mail_is_told_on_a_terminal_only(
    box: Mailbox, mail: Mail, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    box.post(mail)
    attend_after(words())
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    attend_after(words(json=True))
    attend_after(words("mail"))
    assert capsys.readouterr().err == ""
    attend_after(words())
    assert capsys.readouterr().err == "1 mail is unread: epochal mail --unread\n"
    box.mark(box.mails(), is_read=True)
    attend_after(words())
    assert capsys.readouterr().err == ""
