"""Tests of ``epochal mail``: list, show, mark, archive, delete, search, send, try."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from epochal import durable
from epochal.records.mail.compose import MailContent, compose
from epochal.records.mail.mailbox import Mail, Mailbox
from epochal.records.mail.outbox import queue_mail, read_outbox
from failing_disk import read_only_disk
from mail_servers import http_server
from past_runs import RUN, change, expect_from, gone, leave_run
from small_project import Command, tree, write

if TYPE_CHECKING:
    from pathlib import Path

FAILED = MailContent(
    kind="failed", tag="digits", run=RUN, seconds=200.0, why="ValueError: torn", step=3
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def box(tmp_path: Path) -> Mailbox:
    return Mailbox(tmp_path / "runs")


@pytest.fixture
def mails(box: Mailbox) -> list[Mail]:
    """A failure, and a later success of another run."""
    failed = replace(compose(FAILED), id="aaa111bbb2", time="2026-11-15T03:12:00.000+00:00")
    other = "shop/plane/20261115-040000-beef"
    content = MailContent(kind="finished", tag="plane", run=other, seconds=9.0)
    finished = replace(compose(content), id="ccc333ddd4", time="2026-11-15T04:12:00.000+00:00")
    for mail in (failed, finished):
        (box.root / mail.run).mkdir(parents=True)
        box.post(mail)
    return [failed, finished]


def test_empty_mailbox_is_reported_and_not_created(tmp_path: Path, epochal: Command) -> None:
    done = epochal("mail")
    assert (done.code, done.out) == (0, "no mail in runs\n")
    assert tree(tmp_path) == {}


@pytest.mark.usefixtures("mails")
def test_list_has_a_line_per_mail_and_marks_unread_ones(box: Mailbox, epochal: Command) -> None:
    box.mark(box.select(["aaa"]), is_read=True)
    header, first, second, _, last = epochal("mail").out.splitlines()
    assert header.split() == ["mail", "when", "subject"]
    assert first.strip().startswith("aaa111  Nov 15 ")
    assert first.endswith("failed: digits a3f9, 3 min 20 s, ValueError: torn")
    assert second.startswith("*  ccc333  Nov 15 ")
    assert second.endswith("finished: plane beef, 9.0 s")
    assert last == "1 unread; `epochal mail ccc333` shows one"


@pytest.mark.usefixtures("mails")
def test_a_mail_that_is_shown_is_read(box: Mailbox, epochal: Command) -> None:
    done = epochal("mail", "aaa")
    assert done.out.startswith("failed: digits a3f9, 3 min 20 s, ValueError: torn\nNov 15 ")
    assert "epochal show 20261115-031200-a3f9" in done.out
    assert [mail.is_read for mail in box.mails()] == [True, False]
    assert "ccc333" in epochal("mail", "--unread").out
    assert "aaa111" not in epochal("mail", "--unread").out


@pytest.mark.usefixtures("mails")
def test_mail_in_a_read_only_folder_can_be_read_and_stays_unread(
    box: Mailbox, epochal: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable.system, "operations", read_only_disk())
    assert epochal("mail").code == 0
    done = epochal("mail", "aaa")
    assert done.code == 0
    assert "ValueError: torn" in done.out
    assert done.err.startswith("cannot mark as read: ")
    assert done.err.endswith("cannot be written: read-only file system\n")
    done = epochal("mail", "all", "--delete")
    assert done.code == 74
    assert "read-only file system\n  ask for write permission" in done.err
    assert box.count_unread() == 2


@pytest.mark.usefixtures("mails")
def test_several_mails_can_be_shown_and_a_run_selects_its_own(epochal: Command) -> None:
    assert "plane beef" in epochal("mail", "beef").out
    both = epochal("mail", "all").out
    assert "digits a3f9" in both
    assert "plane beef" in both


@pytest.mark.usefixtures("mails")
def test_an_archived_mail_is_not_listed(box: Mailbox, epochal: Command) -> None:
    epochal("mail", "aaa")
    assert epochal("mail", "read", "--archive").out == "1 mail archived\n"
    assert "aaa111" not in epochal("mail").out
    assert "aaa111" in epochal("mail", "--all").out
    assert epochal("mail", "aaa", "--mark", "unread").out == "1 mail marked as unread\n"
    assert "*  aaa111" in epochal("mail").out


@pytest.mark.usefixtures("mails")
def test_a_mail_can_be_deleted(box: Mailbox, epochal: Command) -> None:
    assert epochal("mail", "--delete", "aaa").out == "1 mail deleted\n"
    assert [mail.id for mail in box.mails()] == ["ccc333ddd4"]
    assert epochal("mail", "--search", "plane", "--delete").out == "1 mail deleted\n"
    assert epochal("mail").out == "no mail in runs\n"


@pytest.mark.usefixtures("mails")
def test_a_change_needs_a_selection(box: Mailbox, epochal: Command) -> None:
    for option in ["--delete", "--archive"]:
        done = epochal("mail", option)
        assert done.code == 78, option
        assert done.err.startswith(
            f"{option}: does not say which mails\n  epochal mail read {option}"
        ), option
        assert len(box.mails()) == 2, option


@pytest.mark.usefixtures("mails")
def test_search_covers_subject_run_and_text(epochal: Command) -> None:
    assert "aaa111" in epochal("mail", "--search", "TORN digits").out
    assert "ccc333" not in epochal("mail", "--search", "TORN digits").out
    assert epochal("mail", "--search", "nowhere").out == "no such mail in runs\n"


@pytest.mark.usefixtures("mails")
def test_json_has_all_fields(epochal: Command) -> None:
    listed = json.loads(epochal("mail", "--json").out)
    assert [one["kind"] for one in listed] == ["failed", "finished"]
    assert (listed[0]["read"], listed[0]["archived"]) == (False, False)
    (one,) = json.loads(epochal("mail", "aaa", "--json").out)
    assert one["facts"]["error"] == "ValueError: torn"
    assert json.loads(epochal("mail", "--json", "--limit", "1").out)[0]["id"] == "ccc333ddd4"


def test_an_unknown_mail_is_an_error(epochal: Command) -> None:
    done = epochal("mail", "unknown")
    assert (done.code, done.err.splitlines()[0]) == (74, "unknown: no such mail")


def test_the_list_shows_what_happened_to_the_run_since(
    box: Mailbox, mails: list[Mail], epochal: Command
) -> None:
    folder = leave_run(box, gone(), status="finished", reason="max_epochs")
    assert "since then" not in epochal("mail").out
    change(folder / "status.json", attempt=1)
    assert "resumed, finished" in epochal("mail", "--search", "digits").out
    assert "since then: resumed, finished" in epochal("mail", "aaa").out
    (box.root / mails[1].run).rmdir()
    assert "deleted" in epochal("mail", "--search", "plane").out


def test_lost_runs_get_a_mail_that_is_sent_only_on_request(box: Mailbox, epochal: Command) -> None:
    leave_run(box, gone())
    with http_server() as hook:
        expect_from(box, gone(), specs=[{"type": "webhook", "url": hook.url}])
        out = epochal("mail").out
        assert "lost: digits a3f9" in out
        assert out.endswith("1 not sent; send with `epochal mail --send`\n")
        assert (len(box.mails()), hook.bodies) == (1, [])
        assert epochal("mail", "--send").out == "1 mail sent\n"
    assert [json.loads(body)["kind"] for body in hook.bodies] == ["lost"]


def test_send_also_sends_mail_about_runs_that_were_just_found_lost(
    box: Mailbox, epochal: Command
) -> None:
    leave_run(box, gone())
    with http_server() as hook:
        expect_from(box, gone(), specs=[{"type": "webhook", "url": hook.url}])
        assert epochal("mail", "--send").out == "1 mail sent\n"
    assert len(hook.bodies) == 1


def test_unsent_mail_is_mentioned_and_can_be_sent(
    box: Mailbox, mails: list[Mail], epochal: Command
) -> None:
    with http_server(500) as hook:
        queue_mail(mails[0], [{"type": "webhook", "url": hook.url}], box)
        failed = epochal("mail", "--send")
        assert failed.code == 74
        assert failed.err.startswith("1 of 1 mail could not be sent\n  webhook: 127.0.0.1 said 500")
        assert "1 not sent (webhook: 127.0.0.1 said 500" in epochal("mail").out
        assert epochal("mail", "--send").out == "1 mail sent\n"
    assert len(hook.bodies) == 2
    assert read_outbox(box) == []
    assert epochal("mail", "--send").out == "there is no unsent mail of your runs\n"


def test_try_sends_a_test_mail(
    tmp_path: Path, epochal: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
        env: [HOOK]
        tag: digits
        notify: [{type: webhook, url: "${env:HOOK}", kinds: [lost]}]
    """
    write(tmp_path / "config.yaml", text)
    with http_server(200, 403) as hook:
        monkeypatch.setenv("HOOK", hook.url)
        assert epochal("mail", "--try", "config.yaml").out == "sent by webhook\n"
        refused = epochal("mail", "--try", "config.yaml")
    assert "a test mail" in json.loads(hook.bodies[0])["subject"]
    assert refused.code == 74
    assert "webhook: 127.0.0.1 said 403" in refused.err
    assert not (tmp_path / "runs").exists()


def test_try_needs_a_recipient(tmp_path: Path, epochal: Command) -> None:
    write(tmp_path / "config.yaml", "tag: digits")
    done = epochal("mail", "--try", "config.yaml")
    assert (done.code, done.err.splitlines()[0]) == (78, "notify: config.yaml has no recipients")
    write(tmp_path / "config.yaml", "notify: [{type: webhook, url: x}]")
    assert epochal("mail", "--try", "config.yaml").err.startswith(
        "notify.0.url: is not a web address"
    )
