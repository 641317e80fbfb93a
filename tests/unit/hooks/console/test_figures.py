"""Figures: readable at any size, and no wider than they must be."""

from __future__ import annotations

import math

import pytest

from epochal.hooks.console.figures import show_number, show_rate, show_seconds, show_time


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0000"),
        (0.34123, "0.3412"),
        (-12.5, "-12.500"),
        (9.999_99, "10.000"),
        (123.456, "123.46"),
        (1234.56, "1234.6"),
        (123_456.0, "1.23e+05"),
        (0.000_34, "3.40e-04"),
        (-1e-9, "-1.00e-09"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
    ],
)
def test_numbers_keep_their_leading_digits(value: float, text: str) -> None:
    assert show_number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0:00:00"),
        (62, "0:01:02"),
        (59.6, "0:01:00"),
        (3_600 * 23 + 59, "23:00:59"),
        (90_000, "1d 1:00:00"),
        (-3, "0:00:00"),
        (None, "-:--:--"),
        (math.inf, "-:--:--"),
    ],
)
def test_times_are_hours_minutes_and_seconds(seconds: float | None, text: str) -> None:
    assert show_time(seconds) == text


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (0, "0.00"),
        (0.25, "0.25"),
        (9.996, "10.0"),
        (48.21, "48.2"),
        (99.96, "100"),
        (999.6, "1.00k"),
        (12_345, "12.3k"),
        (2.5e6, "2.50M"),
        (7.7e10, "77.0G"),
        (1e15, "-"),
        (999.7e9, "-"),
        (math.nan, "-"),
    ],
)
def test_rates_have_three_digits_and_a_letter(rate: float, text: str) -> None:
    assert show_rate(rate) == text
    assert len(text) <= 5


def test_numbers_of_one_sign_are_equally_wide_over_seven_orders() -> None:
    widths = {len(show_number(3.21 * 10.0**exponent)) for exponent in range(-3, 4)}
    assert widths == {6}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-0.1, "0 ms"),
        (0.0351, "35 ms"),
        (0.9996, "1.00 s"),
        (9.996, "10.0 s"),
        (75.04, "75.0 s"),
        (999.6, "0:16:40"),
    ],
)
def test_short_times_have_three_digits_and_a_unit(seconds: float, text: str) -> None:
    assert show_seconds(seconds) == text
