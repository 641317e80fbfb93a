"""What is still to be sent: kept, tried, and given up by itself at last."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from epochal.records.mail import Mail, Mailbox
from epochal.records.mail import outbox as module
from epochal.records.mail.outbox import MAX_TRIES, Parcel, claimed, pack, read_outbox
from mail_servers import http_server

if TYPE_CHECKING:
    from pathlib import Path

HOOK = {"type": "webhook", "url": "${env:HOOK_URL}"}


def only(parcels: list[Parcel]) -> Parcel:
    (parcel,) = parcels
    return parcel


def test_parcels_are_kept_with_what_stands_in_the_config(
    box: Mailbox, mail: Mail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_URL", "http://secret.example.org")
    parcels = pack(mail, [HOOK, {"type": "smtp", "host": "mx", "to": ["a@a", "b@b"]}], box)
    assert read_outbox(box) == parcels
    assert [parcel.spec.get("to") for parcel in parcels] == [None, "a@a", "b@b"]
    text = "".join(path.read_text() for path in (box.folder / "outbox").iterdir())
    assert "secret.example.org" not in text


def test_only_wanted_kinds_are_packed(box: Mailbox, mail: Mail) -> None:
    specs: list[dict[str, Any]] = [
        {**HOOK, "kinds": ["finished"]},
        {**HOOK, "kinds": ["failed", "lost"]},
        {**HOOK, "kinds": None},
    ]
    assert [parcel.spec for parcel in pack(mail, specs, box)] == specs[1:]
    assert pack(mail, specs[:1], Mailbox(box.root / "other")) == []
    assert not (box.root / "other").exists()


def test_without_a_box_or_a_disk_parcels_are_in_memory(mail: Mail, tmp_path: Path) -> None:
    assert only(pack(mail, [HOOK], None)).path is None
    (tmp_path / "file").write_text("")
    assert only(pack(mail, [HOOK], Mailbox(tmp_path / "file"))).path is None


def test_what_was_sent_is_gone(box: Mailbox, mail: Mail, monkeypatch: pytest.MonkeyPatch) -> None:
    with http_server() as hook:
        monkeypatch.setenv("HOOK_URL", hook.url)
        assert only(pack(mail, [HOOK], box)).send(seconds=10) is None
    assert len(hook.bodies) == 1
    assert read_outbox(box) == []


def test_what_failed_waits_longer_each_time(
    box: Mailbox, mail: Mail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.time, "time", lambda: 1000.0)
    with http_server(*[500] * MAX_TRIES) as hook:
        monkeypatch.setenv("HOOK_URL", hook.url)
        parcel = only(pack(mail, [HOOK], box))
        assert parcel.is_due
        waits = []
        for _ in range(MAX_TRIES):
            rest = parcel.send(seconds=10)
            assert rest is not None
            assert read_outbox(box) == [rest]
            waits.append(rest.due - 1000.0)
            parcel = rest
    assert waits[:6] == [60, 300, 1800, 7200, 21600, 21600]
    assert parcel.error.startswith("127.0.0.1 said 500")
    assert (parcel.is_final, parcel.is_due) == (True, False)


def test_what_is_refused_for_good_is_not_tried_again(
    box: Mailbox, mail: Mail, monkeypatch: pytest.MonkeyPatch
) -> None:
    with http_server(404) as hook:
        monkeypatch.setenv("HOOK_URL", hook.url)
        rest = only(pack(mail, [HOOK], box)).send(seconds=10)
    assert rest is not None
    assert rest.is_final


def test_a_defect_of_a_library_is_a_failure_like_any_other(
    box: Mailbox, mail: Mail, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(spec: object) -> None:
        raise ZeroDivisionError("of hunter22")

    monkeypatch.setattr(module, "build_channel", build)
    monkeypatch.setenv("HOOK_URL", "hunter22")
    rest = only(pack(mail, [HOOK], box)).send(seconds=1)
    assert rest is not None
    assert (rest.error, rest.is_final) == ("ZeroDivisionError: of ***", False)


def test_a_parcel_is_sent_by_one_process_at_a_time(box: Mailbox, mail: Mail) -> None:
    parcel = only(pack(mail, [HOOK], box))
    with claimed(parcel) as mine:
        assert mine == parcel
        child = os.fork()
        if not child:
            with claimed(parcel) as theirs:
                os._exit(0 if theirs is None else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with claimed(parcel) as mine:
        assert mine == parcel


def test_a_parcel_that_is_sent_or_was_tried_meanwhile_is_nobodys(box: Mailbox, mail: Mail) -> None:
    parcel = only(pack(mail, [HOOK], box))
    replace(parcel, tries=1).write()
    with claimed(parcel) as mine:
        assert mine is None
    assert parcel.path is not None
    parcel.path.unlink()
    with claimed(parcel) as mine:
        assert mine is None


def test_a_later_mail_that_took_its_place_is_not_removed(
    box: Mailbox, mail: Mail, monkeypatch: pytest.MonkeyPatch
) -> None:
    with http_server() as hook:
        monkeypatch.setenv("HOOK_URL", hook.url)
        first = only(pack(mail, [HOOK], box))
        later = only(pack(replace(mail, time="2027-01-01T00:00:00+00:00"), [HOOK], box))
        assert first.send(seconds=10) is None
    assert read_outbox(box) == [later]


@pytest.mark.parametrize("text", ["{", "{}", '{"mail": {}, "notify": {}}', '{"mail": 3}'])
def test_damaged_parcels_are_left_out(box: Mailbox, text: str) -> None:
    (box.make_folder("outbox") / "x.json").write_text(text)
    assert read_outbox(box) == []
