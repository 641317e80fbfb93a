"""The mailbox: posted, found, marked, put away, deleted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from epochal.errors import RecordError
from epochal.records.mail.box import search

if TYPE_CHECKING:
    from epochal.records.mail import Mail, Mailbox


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


def test_an_empty_box_makes_nothing(box: Mailbox) -> None:
    assert (box.mails(), box.count_unread()) == ([], 0)
    assert not box.root.exists()


def test_mails_come_in_the_order_of_time(box: Mailbox, mails: list[Mail]) -> None:
    assert box.mails() == mails
    assert box.count_unread() == 2


def test_a_mail_with_the_same_id_is_replaced(box: Mailbox, mails: list[Mail]) -> None:
    box.post(replace(mails[0], subject="again", is_read=False))
    assert next(mail.subject for mail in box.mails()) == "again"
    assert len(box.mails()) == 3


def test_what_cannot_be_read_is_left_out(box: Mailbox, mails: list[Mail]) -> None:
    (box.folder / "inbox" / "torn.json").write_text('{"id": ')
    (box.folder / "inbox" / ".half.json.1-ab.tmp").write_text("{}")
    assert box.mails() == mails


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        (["2"], [2]),
        (["2abc", "1"], [1, 2]),
        (["all"], [1, 2, 3]),
        (["read"], [1]),
        (["last"], [3]),
        (["a3f9"], [1, 3]),
        (["20261101-000000-beef"], [2]),
    ],
)
def test_words_name_mails(
    box: Mailbox, mails: list[Mail], words: list[str], numbers: list[int]
) -> None:
    assert box.pick(words) == [mails[number - 1] for number in numbers]


def test_a_word_that_names_none_or_several_is_refused(box: Mailbox, mails: list[Mail]) -> None:
    with pytest.raises(RecordError, match="nobody: no such mail\n  `epochal mail --all`"):
        box.pick(["nobody"])
    box.post(replace(mails[0], id="1abd"))
    with pytest.raises(RecordError, match="1ab: fits 2 mails\n  1abc  failed"):
        box.pick(["1ab"])


def test_marks_are_kept(box: Mailbox, mails: list[Mail]) -> None:
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


def test_search_wants_every_word_somewhere(mails: list[Mail]) -> None:
    assert search(mails, ["SCHÖNE", "digits"]) == mails[:2]
    assert search(mails, ["beef"]) == mails[1:2]
    assert search(mails, ["nothing"]) == []
    assert search(mails, []) == mails
