"""Tests of periods."""

from __future__ import annotations

import math

import pytest

from epochal.config.duration import Duration
from epochal.engine.interfaces.every import Every


def test_text_and_durations_are_parsed() -> None:
    table = {"50st": (50, "st"), "1ep": (1, "ep"), "1e3sa": (1000, "sa"), "10min": (600, "s")}
    for text, (amount, unit) in table.items():
        assert Every.parse(text) == Every(amount, unit), text
    assert Every.parse(Every(3, "st")) == Every(3, "st")
    assert Every.parse(Duration(2, "ep")) == Every(2, "ep")


def test_zero_and_nothing_mean_never() -> None:
    for value in (0, "0", None, ""):
        assert Every.parse(value) is Every.NEVER, value
    assert Every.NEVER.is_never
    assert Every.NEVER.after(3) == math.inf


def test_invalid_values_are_refused_with_a_hint() -> None:
    with pytest.raises(ValueError, match=r"needs a unit, got 50; write '50st' or 0"):
        Every.parse(50)
    with pytest.raises(ValueError, match="10ep"):
        Every.parse("5parsec")


def test_times_are_multiples_of_the_amount() -> None:
    assert [Every(5, "st").after(position) for position in (0, 4, 5, 12)] == [5, 5, 10, 15]


def test_it_is_shown_as_it_is_written() -> None:
    assert str(Every.parse("600s")) == "10min"
    assert str(Every.parse("50st")) == "50st"
    assert str(Every.NEVER) == "never"
