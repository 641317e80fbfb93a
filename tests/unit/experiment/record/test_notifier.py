"""Tests of the mails about a run; no error in sending stops the run."""

from __future__ import annotations

import errno
import json
import os
from typing import TYPE_CHECKING, Any

import pytest

import forked
from epochal import durable
from epochal.check import check
from epochal.config import load
from epochal.engine import RunResult
from epochal.experiment.record import notifier as module
from epochal.experiment.record.notifier import Notifier
from epochal.experiment.record.open_record import OpenRecord
from epochal.records import NullWriter
from epochal.records.mail.mailbox import Mail, Mailbox
from epochal.records.mail.outbox import read_outbox
from mail_servers import PASSWORD, Hook, http_server, smtp_server
from small_project import Command, run_folders, tree, write
from terminal import run_on_terminal

if TYPE_CHECKING:
    from pathlib import Path

RUN = ("run", "config.yaml", "record.code=false", "log.tensorboard=false")
HOOKS = '''
"""Hooks that end a run, or break its disk."""

import errno
import os

import epochal as ep
from epochal import durable


class Ends(ep.Hook):
    """Ends the run in its first epoch, as a user or a scheduler would."""

    def __init__(self, *, status: str = "interrupted") -> None:
        self.status = status

    def epoch_end(self, run, split, metrics):
        run.stop("asked to", status=self.status)


class FillsDisk(ep.Hook):
    """Lets every write fail from the first epoch on."""

    def epoch_end(self, run, split, metrics):
        def refuse(*_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        operations = durable.Operations(open=refuse, write=refuse)
        durable.system.operations = operations
'''


@pytest.fixture
def box(shop: Path) -> Mailbox:
    write(shop / "shop" / "hooks.py", HOOKS)
    return Mailbox(shop / "runs")


def only(box: Mailbox) -> Mail:
    (mail,) = box.mails()
    return mail


def expected(box: Mailbox) -> list[Path]:
    return list((box.folder / "expected").iterdir())


def to(hook: Hook, **more: Any) -> str:
    return f"notify={json.dumps([{'type': 'webhook', 'url': hook.url, **more}])}"


def kinds(hook: Hook) -> list[str]:
    return [json.loads(body)["kind"] for body in hook.bodies]


def test_a_finished_run_leaves_a_mail(box: Mailbox, epochal: Command, shop: Path) -> None:
    assert epochal(*RUN, "--desc", "why not").code == 0
    mail, (folder,) = only(box), run_folders(shop)
    assert mail.kind == "finished"
    assert mail.subject.startswith(f"finished: shop {folder.name[-4:]}, ")
    assert "best val/acc" in mail.subject
    assert "why not" in mail.text
    assert box.root / mail.run == folder
    assert mail.facts["step"] == 12
    assert mail.sender["runner"] == "train"
    assert expected(box) == []


def test_the_mail_of_a_failed_run_has_its_traceback(box: Mailbox, epochal: Command) -> None:
    assert epochal(*RUN, "model.type=shop.parts.Crooked").code == 1
    mail = only(box)
    assert mail.subject.endswith("ValueError: shapes do not fit")
    assert 'raise ValueError("shapes do not fit")' in mail.text
    assert mail.text.count("Traceback (most recent call last)") == 1
    assert expected(box) == []


def test_runs_that_diverged_or_could_not_be_built_leave_a_mail(
    box: Mailbox, epochal: Command
) -> None:
    assert epochal(*RUN, "task.type=shop.parts.Stumbling").code == 1
    assert only(box).subject.endswith("KeyError: 'the shelf is empty'")
    epochal(*RUN, "task.type=shop.parts.NanLoss", "engine.on_nonfinite=stop", "monitor=null")
    assert [mail.kind for mail in box.mails()] == ["failed", "diverged"]


def test_a_run_that_was_interrupted_or_preempted_leaves_no_mail(
    box: Mailbox, epochal: Command
) -> None:
    for status in ("interrupted", "preempted"):
        epochal(*RUN, f"hooks=[{{type: shop.hooks.Ends, status: {status}}}]")
        assert box.mails() == [], status
        assert expected(box) == [], status


def test_a_cross_validation_leaves_one_mail(box: Mailbox, epochal: Command) -> None:
    with http_server() as hook:
        assert epochal(*RUN, "train.folds=2", "train.for=1ep", to(hook)).code == 0
    assert only(box).kind == "finished"
    assert kinds(hook) == ["finished"]


def test_a_mistake_in_the_config_leaves_no_mail(box: Mailbox, epochal: Command) -> None:
    assert epochal(*RUN, "optim.lr=fast").code == 78
    assert not box.folder.exists()


def test_mail_goes_to_the_recipients_of_the_config(
    box: Mailbox, epochal: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PW", PASSWORD)
    with smtp_server() as office, http_server() as hook, http_server() as quiet:
        entries = [
            {"type": "smtp", "host": "localhost", "port": office.port, "to": "ann@example.org"},
            {"type": "webhook", "url": hook.url, "headers": {"Authorization": "a ${env:PW}"}},
            {"type": "webhook", "url": quiet.url, "kinds": ["failed", "lost"]},
        ]
        entries[0] |= {"security": "none", "sender": "lab@example.org"}
        assert epochal(*RUN, f"notify={json.dumps(entries)}", "env=[PW]").code == 0
    assert [message["Subject"] for message in office.received] == [only(box).subject]
    assert hook.requests[0][2]["Authorization"] == f"a {PASSWORD}"
    assert not quiet.bodies
    assert read_outbox(box) == []
    everything = b"".join(tree(box.root).values())
    assert PASSWORD.encode() not in everything


def test_a_run_without_a_record_still_sends(box: Mailbox, epochal: Command, shop: Path) -> None:
    with http_server() as hook:
        before = tree(shop)
        assert epochal(*RUN, "--no-file", to(hook)).code == 0
        assert tree(shop) == before
    (body,) = map(json.loads, hook.bodies)
    assert body["subject"].startswith("finished: shop, ")
    assert body["run"] == ""


def test_a_server_that_hangs_does_not_delay_a_run(
    box: Mailbox,
    epochal: Command,
    shop: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(module, "SEND_SECONDS", 0.2)
    with http_server(0) as hook:
        assert epochal(*RUN, to(hook)).code == 0
        (delivery,) = read_outbox(box)
    assert delivery.mail.id == only(box).id
    assert caplog.messages[-1].startswith("not sent by webhook: no answer yet; `")
    assert caplog.messages[-1].endswith(" mail --send` tries again")
    status = json.loads((run_folders(shop)[0] / "status.json").read_text())
    assert status["status"] == "finished"


def test_unsent_mail_stays_in_the_outbox_until_it_is_sent_on_request(
    box: Mailbox, epochal: Command, caplog: pytest.LogCaptureFixture
) -> None:
    with http_server(404) as hook:
        assert epochal(*RUN, to(hook)).code == 0
        assert "not sent by webhook: 127.0.0.1 said 404" in caplog.text
        assert epochal(*RUN).code == 0  # a run sends its own mail only
        assert kinds(hook) == ["finished"]
        assert epochal("mail", "--send").out == "1 mail sent\n"
    assert kinds(hook) == ["finished"] * 2
    assert read_outbox(box) == []


def test_a_run_without_a_home_sends_its_own_mail_and_says_that_no_other_command_can(
    box: Mailbox,
    epochal: Command,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/dev/null")
    with http_server() as hook:
        assert epochal(*RUN, to(hook)).code == 0
        assert epochal("mail", "--send").out == "there is no unsent mail of your runs\n"
    assert kinds(hook) == ["finished"]
    assert "mail cannot be signed, so only this process sends it: /dev/null/epochal" in caplog.text
    assert box.count_outbox() == 0


@pytest.mark.parametrize("name", [".epochal", ".epochal/mail", ".epochal/mail/inbox"])
def test_an_unwritable_mailbox_does_not_disturb_a_run(
    box: Mailbox, epochal: Command, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = box.root / name
    path.parent.mkdir(parents=True)
    path.write_text("in the way")
    with http_server() as hook:
        assert epochal(*RUN, to(hook)).code == 0
    assert kinds(hook) == ["finished"]
    assert "no mail could be written; the run continues" in caplog.text


def test_a_full_disk_is_reported_over_the_network(
    box: Mailbox, epochal: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable.system, "operations", durable.Operations())  # put back in the end
    with http_server() as hook:
        code = epochal(*RUN, "hooks=[{type: shop.hooks.FillsDisk}]", to(hook)).code
    monkeypatch.undo()
    assert code == 74
    assert kinds(hook) == ["out_of_disk"]
    assert os.strerror(errno.ENOSPC).lower() in json.loads(hook.bodies[0])["subject"].lower()


def test_a_resumed_run_leaves_another_mail(box: Mailbox, epochal: Command, shop: Path) -> None:
    epochal(*RUN, "checkpoint.every=1ep", "train.for=2ep")
    epochal("resume", "last", "train.for=3ep")
    first, second = box.mails()
    assert first.run == second.run
    assert (first.facts["attempt"], second.facts["attempt"]) == (0, 1)
    assert (first.facts["step"], second.facts["step"]) == (12, 18)
    out = epochal("mail").out
    assert "resumed, finished" in out
    assert out.count("finished: shop") == 2


def test_the_mailbox_of_a_run_that_was_moved_is_beside_it(
    box: Mailbox, epochal: Command, tmp_path: Path
) -> None:
    epochal(*RUN, "checkpoint.every=1ep", "train.for=2ep")
    moved = tmp_path / "a" / "b" / "moved"
    moved.parent.mkdir(parents=True)
    (box.root / only(box).run).rename(moved)
    epochal("resume", str(moved), "train.for=3ep")
    assert only(Mailbox(moved.parent)).run == "moved"
    assert not Mailbox(tmp_path).folder.exists()


def test_a_refused_resume_is_not_expected_to_send_mail(box: Mailbox, epochal: Command) -> None:
    epochal(*RUN, "checkpoint.every=1ep")
    assert epochal("resume", "last", "train.for=3ep", "task.num_samples=20").code == 78
    assert len(box.mails()) == 1
    assert expected(box) == []


def test_a_run_resumes_without_the_password_of_its_mail(
    box: Mailbox, epochal: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK", "http://127.0.0.1:1/")
    notify = 'notify=[{type: webhook, url: "${env:HOOK}", kinds: [failed]}]'
    assert epochal(*RUN, "checkpoint.every=1ep", notify, "env=[HOOK]").code == 0
    monkeypatch.delenv("HOOK")
    assert epochal(*RUN, notify, "env=[HOOK]").code == 78
    assert epochal("resume", "last", "train.for=3ep").code == 0
    assert len(box.mails()) == 2


def test_an_evaluation_sends_no_mail(box: Mailbox, epochal: Command) -> None:
    with http_server() as hook:
        epochal(*RUN, to(hook))
        assert epochal("test", "last").code == 0
    assert kinds(hook) == ["finished"]


def test_a_supervised_run_reports_its_success_and_leaves_failures_to_the_supervisor(
    box: Mailbox, epochal: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("EPOCHAL_RUN_FILE", str(tmp_path / "first"))
    epochal(*RUN)
    assert only(box).kind == "finished"
    assert expected(box) == []
    monkeypatch.setenv("EPOCHAL_RUN_FILE", str(tmp_path / "second"))
    epochal(*RUN, "model.type=shop.parts.Crooked")
    assert only(box).kind == "finished"
    (note,) = expected(box)
    assert json.loads(note.read_text())["supervised"] is True


def test_a_stall_is_sent_at_once() -> None:
    with http_server() as hook:
        config = load({"tag": "digits", "notify": [{"type": "webhook", "url": hook.url}]})
        with Notifier(check(config)) as notifier:
            record = notifier.begin(OpenRecord(NullWriter()))
            record.on_stall("nothing for 1800 s in train at step 7", 7)
    (body,) = map(json.loads, hook.bodies)
    assert body["subject"].startswith("stalled: digits, ")
    assert body["subject"].endswith("nothing for 1800 s in train at step 7")
    assert body["level"] == "warning"
    assert body["facts"]["step"] == 7


def test_mail_is_unread_only_if_the_run_was_not_in_the_foreground(box: Mailbox) -> None:
    for task, kind in (("Points", "finished"), ("FloatLoss", "failed")):
        words = (*RUN, f"task.type=shop.parts.{task}", "--fast")
        done = run_on_terminal(*words, cwd=box.root.parent)
        assert kind in done.stdout, done.stdout
        assert only(box).kind == kind
        assert box.count_unread() == 0, kind
        box.delete(box.mails())
    forked.run("-m", "epochal", *RUN, "--fast", cwd=box.root.parent)
    assert box.count_unread() == 1


def test_a_trial_of_a_sweep_sends_mail_only_if_it_fails() -> None:
    with http_server() as hook:
        config = load({"tag": "digits", "notify": [{"type": "webhook", "url": hook.url}]})
        for status in ("finished", "stopped", "failed"):
            with Notifier(check(config), is_trial=True) as notifier:
                notifier.begin(OpenRecord(NullWriter()))
                notifier.ended(RunResult(status=status, reason="x"))
    assert kinds(hook) == ["failed"]
