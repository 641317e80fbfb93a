"""Mail on its way: tried again, and waited for only so long."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from epochal.records.mail.outbox import Parcel, pack, read_outbox
from epochal.records.mail.sending import Sending
from mail_servers import Hook, http_server

if TYPE_CHECKING:
    from epochal.records.mail import Mail, Mailbox


def parcels_to(mail: Mail, box: Mailbox | None, *hooks: Hook) -> list[Parcel]:
    return pack(mail, [{"type": "webhook", "url": hook.url} for hook in hooks], box)


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_server_that_stumbles_is_tried_again(mail: Mail, box: Mailbox, is_kept: bool) -> None:
    sending = Sending(pauses=(0.0, 0.0))
    with http_server(500, 503) as hook:
        sending.start(parcels_to(mail, box if is_kept else None, hook))
        assert sending.wait(30) == []
    assert len(hook.bodies) == 3
    assert read_outbox(box) == []


def test_what_could_not_be_sent_is_told_with_the_reason(mail: Mail, box: Mailbox) -> None:
    sending = Sending(pauses=(0.0,))
    with http_server(500, 500) as bad, http_server() as good:
        sending.start(parcels_to(mail, box, bad, good))
        (left,) = sending.wait(30)
    assert left.error.startswith("127.0.0.1 said 500")
    assert read_outbox(box) == [left]
    assert left.tries == 2


def test_a_refusal_for_good_ends_the_tries(mail: Mail) -> None:
    sending = Sending(pauses=(0.0, 0.0))
    with http_server(400) as hook:
        sending.start(parcels_to(mail, None, hook))
        (left,) = sending.wait(30)
    assert left.is_final
    assert len(hook.bodies) == 1


def test_nobody_waits_for_a_server_that_hangs(mail: Mail, box: Mailbox) -> None:
    sending = Sending()
    with http_server(0) as silent, http_server() as good:
        sending.start(parcels_to(mail, box, silent, good))
        sending._threads[1].join(30)  # one that hangs holds up no other
        assert len(good.bodies) == 1
        (left,) = sending.wait(0.1)
        assert left.error == ""
    assert [parcel.spec for parcel in read_outbox(box)] == [left.spec]


def test_nothing_is_tried_again_after_the_wait(mail: Mail) -> None:
    sending = Sending(pauses=(3600.0,))
    with http_server(500) as hook:
        sending.start(parcels_to(mail, None, hook))
        sending.wait(0.5)
        for thread in sending._threads:
            thread.join(10)
            assert not thread.is_alive()
    assert len(hook.bodies) <= 1


def test_waiting_for_nothing_takes_no_time() -> None:
    assert Sending().wait(0.0) == []
