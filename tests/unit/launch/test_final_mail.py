"""The mail about a run that its supervisor does not restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from epochal.errors import ConfigError
from epochal.launch import supervisor
from epochal.launch.restart_policy import ProcessExit, RestartDecision
from epochal.launch.supervisor import MailSettings, send_final_mail
from epochal.records.mail.compose import MailContent, compose
from epochal.records.mail.mailbox import Mailbox
from epochal.records.mail.outbox import queue_mail, read_outbox
from mail_servers import http_server
from past_runs import RUN, expect_from, gone, here, leave_run

if TYPE_CHECKING:
    from pathlib import Path

GIVEN_UP = RestartDecision(False, "it failed 3 times at step 7", has_given_up=True)
FINAL = RestartDecision(False, "another start would not change the config")


@pytest.fixture
def box(tmp_path: Path) -> Mailbox:
    return Mailbox(tmp_path / "runs")


def no_settings() -> None:
    return None


def kinds(box: Mailbox) -> list[str]:
    return [mail.kind for mail in box.mails()]


def test_giving_up_is_mailed_with_the_reason(box: Mailbox) -> None:
    with http_server() as hook:
        folder = leave_run(box, gone(), status="failed", reason="exception")
        expect_from(box, here(), is_supervised=True, specs=[{"type": "webhook", "url": hook.url}])
        end = ProcessExit(code=1, step=7, error="ValueError: torn")
        assert send_final_mail(folder, end, GIVEN_UP, no_settings)
        assert not send_final_mail(folder, end, GIVEN_UP, no_settings)
    (mail,) = box.mails()
    assert mail.subject.startswith("given up: digits a3f9, ")
    assert "it ended with code 1 at step 7 (ValueError: torn); it failed 3 times" in mail.subject
    assert mail.kind == "gave_up"
    assert len(hook.bodies) == 1


def test_the_record_decides_the_kind_of_a_final_end(box: Mailbox) -> None:
    table = {
        ("failed", 78): ["failed"],
        ("running", 78): ["gave_up"],
        ("finished", 0): ["finished"],
        ("failed", 130): [],
    }
    found = {}
    for status, code in table:
        folder = leave_run(box, gone(), status=status, reason="exception")
        note = expect_from(box, here(), is_supervised=True)
        send_final_mail(folder, ProcessExit(code=code, step=7), FINAL, no_settings)
        found[status, code] = kinds(box)
        box.delete(box.mails())
        assert not note.exists()
    assert found == table


def test_a_supervisor_retries_the_unsent_mail_of_its_own_run_only(
    box: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "RETRY_SECONDS", (0.0, 0.0))
    folder = leave_run(box, gone(), status="finished")
    with http_server(500, 500) as hook, http_server() as other:
        for run, url in ((RUN, hook.url), ("shop/digits/another", other.url)):
            mail = compose(MailContent(kind="finished", tag="digits", run=run))
            queue_mail(mail, [{"type": "webhook", "url": url}], box)
        assert not send_final_mail(folder, ProcessExit(code=0), FINAL, no_settings)
    assert (len(hook.bodies), len(other.bodies)) == (3, 0)
    assert [one.mail.run for one in read_outbox(box)] == ["shop/digits/another"]
    assert kinds(box) == []


def test_a_run_that_never_had_a_folder_is_mailed_where_its_config_says(box: Mailbox) -> None:
    settings = MailSettings(root=box.root, tag="digits", specs=[])
    end = ProcessExit(code=-9)
    assert send_final_mail(None, end, GIVEN_UP, lambda: settings)
    assert [mail.subject for mail in box.mails()] == [
        "given up: digits, it was killed by SIGKILL at step 0; it failed 3 times at step 7"
    ]
    assert not send_final_mail(None, end, GIVEN_UP, no_settings)
    assert not send_final_mail(None, ProcessExit(code=130), FINAL, lambda: settings)
    assert kinds(box) == ["gave_up"]


def test_an_unreadable_config_or_disk_raises_nothing(box: Mailbox) -> None:
    def broken() -> MailSettings:
        raise ConfigError

    end = ProcessExit(code=1)
    assert not send_final_mail(None, end, GIVEN_UP, broken)
    box.root.write_text("a file")
    assert not send_final_mail(None, end, GIVEN_UP, lambda: MailSettings(root=box.root))
