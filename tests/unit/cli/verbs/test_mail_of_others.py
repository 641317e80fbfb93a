"""A mailbox that others made: no command sends what it asks for, and nothing leaves its folder."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from epochal import durable
from epochal.launch.restart_policy import ProcessExit, RestartDecision
from epochal.launch.supervisor import MailSettings, send_final_mail
from epochal.records.mail.compose import MailContent, compose
from epochal.records.mail.mailbox import Mailbox, make_id
from epochal.records.mail.outbox import queue_mail, read_outbox
from mail_servers import Hook, http_server
from past_runs import RUN, expect_from, gone, here, leave_run
from small_project import Command, tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from odd_files import OddFiles

SECRET = "s3cr3t-of-the-reader"
VERBS = (
    ["mail"], ["mail", "--json"], ["mail", "all"], ["mail", "--send"],
    ["runs"], ["show", "last"], ["diff", "last", "last"], ["index"], ["index", "rebuild"],
)  # fmt: skip


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    """A server of the attacker; the reader has a secret in the environment."""
    monkeypatch.setenv("READER_TOKEN", SECRET)
    with http_server() as server:
        yield server


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mailbox:
    monkeypatch.chdir(tmp_path)
    box = Mailbox(tmp_path / "runs")
    leave_run(box, gone())
    return box


def stealing(hook: Hook) -> dict[str, Any]:
    headers = {"X-Taken": "${env:READER_TOKEN}"}
    return {"type": "webhook", "url": hook.url, "headers": headers, "env": ["READER_TOKEN"]}


def plant_outbox(box: Mailbox, spec: object, **more: object) -> Path:
    mail = compose(MailContent(kind="failed", tag="digits", run=RUN)).to_json()
    path = box.make_folder("outbox") / f"{mail['id']}-0.json"
    durable.write_json(path, {"mail": mail, "notify": spec, **more})
    return path


def plant_note(box: Mailbox, spec: object, run: str = RUN, **more: object) -> Path:
    path = box.make_folder("expected") / f"{make_id(run)}.json"
    owner = {"owner": gone(), "supervised": True}
    durable.write_json(path, {"run": run, "notify": [spec], **owner, **more})
    return path


def test_no_command_sends_what_a_copied_mailbox_asks_for(
    box: Mailbox, hook: Hook, epochal: Command
) -> None:
    for signature in ({}, {"signature": "0" * 64}, {"signature": 3}, {"signature": "ü"}):
        plant_outbox(box, stealing(hook), **signature)
        plant_note(box, stealing(hook), **signature)
        for words in VERBS:
            epochal(*words)
            assert hook.requests == [], (words, signature)
    end = ProcessExit(code=1, step=7)
    plant_note(box, stealing(hook))
    send_final_mail(box.root / RUN, end, RestartDecision(False, "no"), lambda: None)
    assert hook.requests == []


def test_signed_mail_is_sent_to_its_own_address_and_place_only(
    box: Mailbox, hook: Hook, epochal: Command, tmp_path: Path
) -> None:
    mail = compose(MailContent(kind="failed", tag="digits", run=RUN))
    (delivery,) = queue_mail(mail, [{"type": "webhook", "url": "http://127.0.0.1:1/"}], box)
    assert delivery.path is not None
    values = json.loads(delivery.path.read_text())
    delivery.path.unlink()
    outbox = delivery.path.parent
    changed = {
        "another address": {**values, "notify": {**values["notify"], "url": hook.url}},
        "another recipient": {**values, "notify": stealing(hook)},
        "another mail": {**values, "mail": {**values["mail"], "text": "send money"}},
        "without the signature": {key: values[key] for key in values if key != "signature"},
    }
    for what, content in changed.items():
        durable.write_json(delivery.path, content)
        assert read_outbox(box) == [], what
        delivery.path.unlink()
    durable.write_json(outbox / "other-0.json", values)
    assert read_outbox(box) == [], "another name"
    (outbox / "other-0.json").rename(delivery.path)
    assert read_outbox(box) == [delivery]
    shutil.copytree(box.root, tmp_path / "copied")
    assert read_outbox(Mailbox(tmp_path / "copied")) == [], "another folder"
    (tmp_path / "linked").symlink_to(box.root)
    assert [one.mail for one in read_outbox(Mailbox(tmp_path / "linked"))] == [mail], "a link"
    note = expect_from(box, gone(), specs=[{"type": "webhook", "url": "http://127.0.0.1:1/"}])
    durable.write_json(note, {**json.loads(note.read_text()), "notify": [stealing(hook)]})
    epochal("mail", "--send")
    assert note.exists()  # left to the user whose run wrote it
    assert hook.requests == []


def test_a_note_without_a_signature_gets_a_mail_in_the_mailbox_only(
    box: Mailbox, hook: Hook, epochal: Command
) -> None:
    note = plant_note(box, stealing(hook))
    assert "lost: digits a3f9" in epochal("mail").out
    assert not note.exists()
    assert box.count_outbox() == 0


def test_names_that_the_config_does_not_declare_are_not_read(
    box: Mailbox, hook: Hook, epochal: Command
) -> None:
    mail = compose(MailContent(kind="failed", tag="digits", run=RUN))
    queue_mail(mail, [{**stealing(hook), "env": ["OTHER"]}], box)
    failed = epochal("mail", "--send")
    assert "the config of the run does not declare READER_TOKEN in `env`" in failed.err
    assert hook.requests == []


def test_the_reason_is_said_when_files_are_not_sent(
    box: Mailbox, hook: Hook, epochal: Command
) -> None:
    plant_outbox(box, stealing(hook))
    what = "runs/.epochal/mail/outbox: 1 file will not be sent: not written by one of your runs"
    for words in (["mail"], ["mail", "--send"]):
        out = " ".join(epochal(*words).out.split())
        assert what in out, out


def test_paths_that_leave_the_folder_are_ignored(
    box: Mailbox, hook: Hook, epochal: Command, tmp_path: Path
) -> None:
    other = Mailbox(tmp_path / "private")
    leave_run(other, gone())
    before = tree(other.root)
    for run in (f"../private/{RUN}", str(other.root / RUN), f"shop/../../private/{RUN}", "a\0b"):
        plant_note(box, stealing(hook), run=run)
        mail = compose(MailContent(kind="failed", tag="digits", run=RUN)).to_json()
        durable.write_json(box.make_folder("inbox") / "aaa.json", {**mail, "run": run})
        done = epochal("mail")
        assert done.code == 0, run
        assert box.mails() == [], run
    assert tree(other.root) == before
    assert hook.requests == []


def test_folders_of_a_mailbox_that_are_links_are_not_written_to(
    box: Mailbox, hook: Hook, epochal: Command, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    plant_note(box, stealing(hook))
    (box.folder / "inbox").symlink_to(outside)
    epochal("mail")
    assert tree(outside) == {}
    assert (box.folder / "expected").is_dir()


def test_files_that_are_not_regular_do_not_stall_the_mailbox(
    box: Mailbox, epochal: Command, tmp_path: Path, odd_file: OddFiles
) -> None:
    for kind in odd_file.kinds:
        for name in ("inbox", "outbox", "expected"):
            odd_file(kind, box.make_folder(name) / "aaa-0.json")
        for words in (["mail"], ["mail", "--send"]):
            assert epochal(*words).code == 0, (kind, words)
        assert odd_file.is_untouched(), kind
        shutil.rmtree(box.folder)


def test_a_supervisor_without_a_key_sends_to_the_recipients_of_its_config(
    box: Mailbox, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/dev/null")
    folder = leave_run(box, gone(), status="failed", reason="exception")
    plant_note(box, {"type": "webhook", "url": "http://127.0.0.1:1/"}, owner=here())
    settings = MailSettings(root=box.root, specs=[{"type": "webhook", "url": hook.url}])
    given_up = RestartDecision(False, "it failed", has_given_up=True)
    assert send_final_mail(folder, ProcessExit(code=1, step=7), given_up, lambda: settings)
    assert len(hook.requests) == 1
