"""Mails as plain data, and the mailbox: posted, selected, marked, deleted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from epochal.errors import RecordError
from epochal.records.mail.mailbox import KINDS, Mail, make_id, parse_mail, search_mails

if TYPE_CHECKING:
    from epochal.records.mail.mailbox import Mailbox


def test_a_mail_survives_json(mail: Mail) -> None:
    assert parse_mail(mail.to_json()) == mail
    archived = replace(mail, is_read=True, is_archived=True)
    assert parse_mail(mail.to_json() | {"read": True, "archived": True}) == archived


def test_invalid_data_and_ids_that_leave_the_folder_are_no_mail(mail: Mail) -> None:
    changes: list[dict[str, Any]] = [{"kind": "birthday"}, {"subject": None}, {"id": 3}]
    changes += [{"id": name} for name in ("../x", "/x", "a/b", "", "a\0")]
    accepted = [one for one in changes if parse_mail(mail.to_json() | one) is not None]
    assert accepted == []
    assert parse_mail({}) is None


def test_damaged_details_are_left_out(mail: Mail) -> None:
    found = parse_mail(mail.to_json() | {"facts": 3, "sender": None})
    assert found is not None
    assert (found.facts, found.sender) == ({}, {})


def test_every_kind_has_a_level(mail: Mail) -> None:
    levels = {kind: replace(mail, kind=kind).level for kind in KINDS}
    assert levels == {
        "finished": "info",
        "sweep_done": "info",
        "stalled": "warning",
        **dict.fromkeys(("failed", "diverged", "out_of_disk", "lost", "gave_up"), "error"),
    }


def test_the_same_event_has_the_same_id() -> None:
    assert make_id("a", 1) == make_id("a", 1) != make_id("a", 2)
    assert make_id("a", "b") != make_id("ab", "")
    assert make_id("\udcff")  # folder names may hold any bytes


def numbered(mail: Mail, number: int, **changes: object) -> Mail:
    known = {"id": f"{number}abc", "time": f"2026-11-1{number}T00:00:00+00:00"}
    return replace(mail, **known | changes)  # type: ignore[arg-type]


@pytest.fixture
def mails(box: Mailbox, mail: Mail) -> list[Mail]:
    found = [
        numbered(mail, 1, is_read=True),
        numbered(mail, 2, run="shop/other/20261101-000000-beef"),
        numbered(mail, 3, subject="finished: digits", text="all well"),
    ]
    for one in reversed(found):
        box.post(one)
    return found


def test_an_empty_mailbox_creates_no_folder(box: Mailbox) -> None:
    assert (box.mails(), box.count_unread(), box.count_outbox()) == ([], 0, 0)
    assert not box.root.exists()


def test_mails_are_sorted_by_time(box: Mailbox, mails: list[Mail]) -> None:
    assert box.mails() == mails
    assert box.count_unread() == 2


def test_a_mail_with_the_same_id_is_replaced(box: Mailbox, mails: list[Mail]) -> None:
    box.post(replace(mails[0], subject="again", is_read=False))
    assert next(mail.subject for mail in box.mails()) == "again"
    assert len(box.mails()) == 3


def test_unreadable_files_are_left_out(box: Mailbox, mails: list[Mail]) -> None:
    (box.folder / "inbox" / "torn.json").write_text('{"id": ')
    (box.folder / "inbox" / ".half.json.1-ab.tmp").write_text("{}")
    assert box.mails() == mails


def test_words_select_mails(box: Mailbox, mails: list[Mail]) -> None:
    table = {
        "2": [2],
        "2abc 1": [1, 2],
        "all": [1, 2, 3],
        "read": [1],
        "last": [3],
        "a3f9": [1, 3],
        "20261101-000000-beef": [2],
    }
    found = {
        words: [mails.index(mail) + 1 for mail in box.select(words.split())] for words in table
    }
    assert found == table


def test_a_word_that_matches_no_mail_or_several_is_refused(box: Mailbox, mails: list[Mail]) -> None:
    with pytest.raises(RecordError, match="unknown: no such mail\n  `epochal mail --all`"):
        box.select(["unknown"])
    box.post(replace(mails[0], id="1abd"))
    with pytest.raises(RecordError, match="1ab: matches 2 mails\n  1abc  failed"):
        box.select(["1ab"])


def test_marks_are_stored(box: Mailbox, mails: list[Mail]) -> None:
    box.mark(mails[1:2], is_read=True)
    box.mark(mails[2:], is_archived=True)
    found = box.mails()
    assert [mail.is_read for mail in found] == [True, True, False]
    assert [mail.is_archived for mail in found] == [False, False, True]
    assert box.count_unread() == 0


def test_a_deleted_mail_stays_deleted(box: Mailbox, mails: list[Mail]) -> None:
    box.delete(mails[:1])
    box.delete(mails[:1])
    box.mark(mails[:1], is_read=False)
    assert box.mails() == mails[1:]


def test_search_needs_every_word_somewhere(mails: list[Mail]) -> None:
    assert search_mails(mails, ["SCHÖNE", "digits"]) == mails[:2]
    assert search_mails(mails, ["beef"]) == mails[1:2]
    assert search_mails(mails, ["nothing"]) == []
    assert search_mails(mails, []) == mails
