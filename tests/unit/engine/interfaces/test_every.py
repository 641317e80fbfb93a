"""Tests of periods."""

from __future__ import annotations

import math

import pytest

from epochal.config.duration import Duration
from epochal.engine.interfaces.every import Every


@pytest.mark.parametrize(
    ("text", "amount", "unit"),
    [("50st", 50, "st"), ("1ep", 1, "ep"), ("1e3sa", 1000, "sa"), ("10min", 600, "s")],
)
def test_text_is_read_as_amount_and_unit(text: str, amount: float, unit: str) -> None:
    assert Every.parse(text) == Every(amount, unit)


@pytest.mark.parametrize("value", [0, "0", None, ""])
def test_zero_and_nothing_mean_never(value: object) -> None:
    assert Every.parse(value).is_never
    assert Every.parse(value) is Every.NEVER


def test_values_are_taken_as_they_are() -> None:
    assert Every.parse(Every(3, "st")) == Every(3, "st")
    assert Every.parse(Duration(2, "ep")) == Every(2, "ep")


def test_a_bare_number_is_refused_with_what_to_write() -> None:
    with pytest.raises(ValueError, match=r"needs a unit, got 50; write '50st' or 0"):
        Every.parse(50)


def test_an_unknown_unit_says_what_is_accepted() -> None:
    with pytest.raises(ValueError, match="10ep"):
        Every.parse("5parsec")


@pytest.mark.parametrize(("position", "expected"), [(0, 5), (4, 5), (5, 10), (12, 15)])
def test_times_are_multiples_whatever_the_start(position: int, expected: int) -> None:
    assert Every(5, "st").after(position) == expected


def test_never_has_no_time() -> None:
    assert Every.NEVER.after(3) == math.inf


def test_it_is_shown_as_it_is_written() -> None:
    assert str(Every.parse("600s")) == "10min"
    assert str(Every.parse("50st")) == "50st"
    assert str(Every.NEVER) == "never"
