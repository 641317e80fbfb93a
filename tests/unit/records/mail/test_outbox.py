"""The outbox: deliveries are stored, sent by one process at a time, and retried."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from epochal.records.mail import outbox as module
from epochal.records.mail.mailbox import Mail, Mailbox
from epochal.records.mail.outbox import (
    BackgroundSender,
    Delivery,
    locked,
    queue_mail,
    read_outbox,
)
from mail_servers import Hook, http_server

if TYPE_CHECKING:
    from pathlib import Path

HOOK = {"type": "webhook", "url": "${env:HOOK_URL}", "env": ["HOOK_URL"]}


def only(deliveries: list[Delivery]) -> Delivery:
    (delivery,) = deliveries
    return delivery


def test_deliveries_are_stored_without_values_of_the_environment(
    box: Mailbox, mail: Mail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_URL", "http://secret.example.org")
    deliveries = queue_mail(mail, [HOOK, {"type": "smtp", "host": "mx", "to": ["a@a", "b@b"]}], box)
    assert read_outbox(box) == deliveries
    assert [delivery.spec.get("to") for delivery in deliveries] == [None, "a@a", "b@b"]
    text = "".join(path.read_text() for path in (box.folder / "outbox").iterdir())
    assert "secret.example.org" not in text


def test_only_wanted_kinds_are_queued(box: Mailbox, mail: Mail) -> None:
    specs: list[dict[str, Any]] = [
        {**HOOK, "kinds": ["finished"]},
        {**HOOK, "kinds": ["failed", "lost"]},
        {**HOOK, "kinds": None},
    ]
    assert [delivery.spec for delivery in queue_mail(mail, specs, box)] == specs[1:]
    assert queue_mail(mail, specs[:1], Mailbox(box.root / "other")) == []
    assert not (box.root / "other").exists()


def test_without_a_mailbox_or_a_disk_deliveries_stay_in_memory(mail: Mail, tmp_path: Path) -> None:
    assert only(queue_mail(mail, [HOOK], None)).path is None
    (tmp_path / "file").write_text("")
    assert only(queue_mail(mail, [HOOK], Mailbox(tmp_path / "file"))).path is None


def test_a_sent_delivery_is_removed(
    box: Mailbox, mail: Mail, monkeypatch: pytest.MonkeyPatch
) -> None:
    with http_server() as hook:
        monkeypatch.setenv("HOOK_URL", hook.url)
        assert only(queue_mail(mail, [HOOK], box)).send() is None
    assert len(hook.bodies) == 1
    assert read_outbox(box) == []


def test_a_permanent_refusal_is_stored(
    box: Mailbox, mail: Mail, monkeypatch: pytest.MonkeyPatch
) -> None:
    with http_server(404) as hook:
        monkeypatch.setenv("HOOK_URL", hook.url)
        rest = only(queue_mail(mail, [HOOK], box)).send()
    assert rest is not None
    assert rest.is_final
    assert read_outbox(box) == [rest]


def test_any_exception_is_a_temporary_failure_without_secrets(
    box: Mailbox, mail: Mail, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(spec: object) -> None:
        raise ZeroDivisionError("of hunter22")

    monkeypatch.setattr(module, "build_channel", build)
    monkeypatch.setenv("HOOK_URL", "hunter22")
    rest = only(queue_mail(mail, [HOOK], box)).send()
    assert rest is not None
    assert (rest.error, rest.is_final) == ("ZeroDivisionError: of ***", False)


def test_one_process_at_a_time_sends_a_delivery(
    box: Mailbox, mail: Mail, monkeypatch: pytest.MonkeyPatch
) -> None:
    with http_server() as hook:
        monkeypatch.setenv("HOOK_URL", hook.url)
        delivery = only(queue_mail(mail, [HOOK], box))
        assert delivery.path is not None
        with locked(delivery.path) as is_mine:
            assert is_mine
            assert delivery.send_alone() is None  # left to the process with the lock
        assert len(read_outbox(box)) == 1
        for _ in range(2):  # the second finds that it was sent
            assert delivery.send_alone() is None
    assert len(hook.bodies) == 1


def test_a_later_mail_with_the_same_id_is_not_removed(
    box: Mailbox, mail: Mail, monkeypatch: pytest.MonkeyPatch
) -> None:
    with http_server() as hook:
        monkeypatch.setenv("HOOK_URL", hook.url)
        first = only(queue_mail(mail, [HOOK], box))
        later = only(queue_mail(replace(mail, time="2027-01-01T00:00:00+00:00"), [HOOK], box))
        assert first.send() is None
    assert read_outbox(box) == [later]


def test_damaged_files_are_left_out(box: Mailbox) -> None:
    folder = box.make_folder("outbox")
    for index, text in enumerate(["{", "{}", '{"mail": {}, "notify": {}}', '{"mail": 3}']):
        (folder / f"{index}.json").write_text(text)
    assert read_outbox(box) == []


def deliveries_to(mail: Mail, box: Mailbox | None, *hooks: Hook) -> list[Delivery]:
    return queue_mail(mail, [{"type": "webhook", "url": hook.url} for hook in hooks], box)


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_temporary_failure_is_retried(mail: Mail, box: Mailbox, is_kept: bool) -> None:
    sender = BackgroundSender(retry_seconds=(0.0, 0.0))
    with http_server(500, 503) as hook:
        sender.start(deliveries_to(mail, box if is_kept else None, hook))
        assert sender.wait(30) == []
    assert len(hook.bodies) == 3
    assert read_outbox(box) == []


def test_what_could_not_be_sent_is_returned_with_the_reason(mail: Mail, box: Mailbox) -> None:
    sender = BackgroundSender(retry_seconds=(0.0,))
    with http_server(500, 500) as bad, http_server() as good:
        sender.start(deliveries_to(mail, box, bad, good))
        (unsent,) = sender.wait(30)
    assert unsent.error.startswith("127.0.0.1 said 500")
    assert read_outbox(box) == [unsent]
    assert len(bad.bodies) == 2


def test_a_permanent_refusal_is_not_retried(mail: Mail) -> None:
    sender = BackgroundSender(retry_seconds=(0.0, 0.0))
    with http_server(400) as hook:
        sender.start(deliveries_to(mail, None, hook))
        (unsent,) = sender.wait(30)
    assert unsent.is_final
    assert len(hook.bodies) == 1


def test_a_server_that_hangs_does_not_delay_others(mail: Mail, box: Mailbox) -> None:
    sender = BackgroundSender()
    with http_server(0) as silent, http_server() as good:
        sender.start(deliveries_to(mail, box, silent, good))
        sender._threads[1].join(30)
        assert len(good.bodies) == 1
        (unsent,) = sender.wait(0.1)
        assert unsent.error == ""
    assert [one.spec for one in read_outbox(box)] == [unsent.spec]


def test_retries_stop_after_the_wait(mail: Mail) -> None:
    sender = BackgroundSender(retry_seconds=(3600.0,))
    with http_server(500) as hook:
        sender.start(deliveries_to(mail, None, hook))
        sender.wait(0.5)
        for thread in sender._threads:
            thread.join(10)
            assert not thread.is_alive()
    assert len(hook.bodies) <= 1


def test_waiting_without_deliveries_returns_at_once() -> None:
    assert BackgroundSender().wait(0.0) == []
