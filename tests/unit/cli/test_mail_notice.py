"""Tests of the note about mail after commands that read runs."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import pytest

from epochal.cli.main import notify_of_mail
from epochal.records.mail.compose import MailContent, compose
from epochal.records.mail.mailbox import Mail, Mailbox
from epochal.records.mail.outbox import queue_mail
from mail_servers import http_server
from past_runs import RUN, expect_from, gone, leave_run
from small_project import Command, tree


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mailbox:
    monkeypatch.chdir(tmp_path)
    return Mailbox(Path("runs"))


@pytest.fixture
def mail() -> Mail:
    return compose(MailContent(kind="failed", tag="digits", run=RUN))


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)


def words(verb: str = "runs", **more: object) -> argparse.Namespace:
    return argparse.Namespace(verb=verb, runs_dir=Path("runs"), **more)


def test_commands_that_read_runs_show_lost_ones_and_send_nothing(
    box: Mailbox, mail: Mail, epochal: Command
) -> None:
    leave_run(box, gone())
    with http_server() as hook:
        specs = [{"type": "webhook", "url": hook.url}]
        expect_from(box, gone(), specs=specs)
        queue_mail(mail, specs, box)
        before = tree(box.folder)
        for command in (["runs"], ["show", "last"], ["diff", "last", "last"]):
            done = epochal(*command)
            assert tree(box.folder) == before, command
            assert done.code == 0, done.err
        listed = json.loads(epochal("runs", "--json").out)
    assert [run["status"] for run in listed] == ["lost"]
    assert not hook.bodies


@pytest.mark.usefixtures("terminal")
def test_without_a_mailbox_nothing_is_created(box: Mailbox, tmp_path: Path) -> None:
    notify_of_mail(words())
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("terminal")
def test_an_unreadable_mailbox_breaks_no_command(box: Mailbox) -> None:
    box.folder.mkdir(parents=True)
    (box.folder / "inbox").write_text("a file")
    (box.folder / "outbox").symlink_to("outbox")
    notify_of_mail(words())


def test_unread_and_unsent_mail_is_mentioned_on_a_terminal_only(
    box: Mailbox, mail: Mail, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    box.post(mail)
    notify_of_mail(words())
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    notify_of_mail(words(json=True))
    notify_of_mail(words("mail"))
    assert capsys.readouterr().err == ""
    notify_of_mail(words())
    assert capsys.readouterr().err == "1 mail is unread: epochal mail --unread\n"
    queue_mail(mail, [{"type": "webhook", "url": f"http://{name}"} for name in "ab"], box)
    notify_of_mail(words())
    assert capsys.readouterr().err == (
        "1 mail is unread: epochal mail --unread; 2 mails are unsent: epochal mail --send\n"
    )
