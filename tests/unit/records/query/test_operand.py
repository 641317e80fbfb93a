"""Tests of what a name is compared with."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from epochal.errors import ConfigError
from epochal.records.query.operand import Operand
from epochal.records.query.tokens import Token, Written
from epochal.records.query.tree import Value
from epochal.records.query.values import Length

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


def made(sign: str, text: str) -> Operand:
    return Operand(
        sign, Value(text, Token("word", text, 4, 4 + len(text))), Written("a = " + text, "--where")
    )


@pytest.mark.parametrize(
    ("text", "number"),
    [("3", 3), ("0.5", 0.5), (str(2**63 - 1), 2**63 - 1), (f"+{2**64}", str(2**64)), ("x", None)],
)
def test_integers_stay_exact_and_those_too_large_for_sqlite_become_digits(
    text: str, number: object
) -> None:
    found = made("=", text).find_number()
    assert (found, type(found)) == (number, type(number))


def test_lengths_are_read_where_there_is_one() -> None:
    assert made("<", "10ep").find_length() == Length(10.0, "ep")
    assert made("<", "ten").find_length() is None
    assert made("<", "2min").read_seconds("time") == 120.0
    assert made("<", "7").read_seconds("time") == 7.0


@pytest.mark.parametrize(
    ("sign", "text", "read", "message"),
    [
        ("<", "nan", Operand.find_number, "nothing is more or less than nan"),
        (">", str(2**63), Operand.find_number, "integers are ordered up to 9223372036854775807"),
        ("=", "many", lambda one: one.read_number("step"), "step is a number, got 'many'"),
        ("~", "3", lambda one: one.read_number("step"), "~ finds parts of texts"),
        (">", "90%", lambda one: one.read_number("val/acc"), "write 0.9"),
        (">", "best", lambda one: one.read_number("val/acc"), "names are not compared"),
        ("<", "3ep", lambda one: one.read_seconds("time"), "write 30s, 20min, 2h"),
        ("~", "3h", lambda one: one.read_seconds("time"), "time is a length of time"),
        ("<", "soon", lambda one: one.read_period("started", NOW), "started is a date, got"),
        ("<", "7d", lambda one: one.read_period("started", NOW), "write age < 7d"),
        ("~", "2025", lambda one: one.read_period("started", NOW), "write started = 2025"),
    ],
)
def test_what_cannot_be_read_so_is_pointed_at(
    sign: str, text: str, read: Callable[[Operand], object], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(made(sign, text))
    assert message in str(caught.value)
    assert f"    {'^' * len(text)}\n" in str(caught.value)
