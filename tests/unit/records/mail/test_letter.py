"""Mails as plain data, and their ids."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from epochal.records.mail.letter import KINDS, Mail, identify, read_mail


def test_a_mail_survives_being_written(mail: Mail) -> None:
    assert read_mail(mail.to_json()) == mail
    put_away = replace(mail, is_read=True, is_archived=True)
    assert read_mail(mail.to_json() | {"read": True, "archived": True}) == put_away


@pytest.mark.parametrize("change", [{"kind": "birthday"}, {"subject": None}, {"id": 3}])
def test_what_is_no_mail_is_none(mail: Mail, change: dict[str, Any]) -> None:
    assert read_mail(mail.to_json() | change) is None
    assert read_mail({}) is None


def test_damaged_details_are_left_out(mail: Mail) -> None:
    found = read_mail(mail.to_json() | {"facts": 3, "sender": None})
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


def test_the_same_thing_has_the_same_id() -> None:
    assert identify("a", 1) == identify("a", 1) != identify("a", 2)
    assert identify("a", "b") != identify("ab", "")
    assert identify("\udcff")  # names of folders may be anything


@pytest.mark.parametrize("name", ["../x", "/x", "a/b", "", "a\0"])
def test_a_mail_whose_name_leads_elsewhere_is_none(mail: Mail, name: str) -> None:
    assert read_mail(mail.to_json() | {"id": name}) is None
