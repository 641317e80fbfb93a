"""Numbers, times and rates as text."""

from __future__ import annotations

import math

from epochal.hooks.console.number_format import (
    format_clock,
    format_duration,
    format_number,
    format_progress,
    format_rate,
)


def test_numbers_keep_their_leading_digits() -> None:
    expected = {
        0.0: "0.0000",
        0.34123: "0.3412",
        -12.5: "-12.500",
        0.999_99: "1.0000",
        9.999_99: "10.000",
        123.456: "123.46",
        1234.56: "1234.6",
        123_456.0: "1.23e+05",
        0.000_34: "3.40e-04",
        -1e-9: "-1.00e-09",
        -math.inf: "-inf",
    }
    assert {value: format_number(value) for value in expected} == expected
    assert format_number(math.nan) == "nan"


def test_numbers_of_one_sign_have_one_width_over_seven_orders() -> None:
    widths = {len(format_number(3.21 * 10.0**exponent)) for exponent in range(-3, 4)}
    assert widths == {6}


def test_clock_times_are_hours_minutes_and_seconds() -> None:
    expected = {
        0: "0:00:00",
        62: "0:01:02",
        59.6: "0:01:00",
        3_600 * 23 + 59: "23:00:59",
        90_000: "1d 1:00:00",
        200_000: "2d 7:33:20",
        -3: "0:00:00",
        None: "-:--:--",
        math.inf: "-:--:--",
    }
    assert {seconds: format_clock(seconds) for seconds in expected} == expected


def test_rates_have_three_digits_and_a_unit() -> None:
    expected = {
        0: "0.00",
        0.25: "0.25",
        0.001: "0.00",
        9.996: "10.0",
        48.21: "48.2",
        99.96: "100",
        999.6: "1.00k",
        12_345: "12.3k",
        2.5e6: "2.50M",
        7.7e10: "77.0G",
        1e15: "-",
        999.7e9: "-",
        math.inf: "-",
    }
    assert {rate: format_rate(rate) for rate in expected} == expected
    assert format_rate(math.nan) == "-"


def test_durations_have_three_digits_and_a_unit() -> None:
    expected = {
        -0.1: "0 ms",
        0.0351: "35 ms",
        0.9996: "1.00 s",
        9.996: "10.0 s",
        75.04: "75.0 s",
        999.6: "0:16:40",
    }
    assert {seconds: format_duration(seconds) for seconds in expected} == expected


def test_counts_keep_their_width() -> None:
    assert format_progress(7, 225) == "  7/225"
    assert format_progress(7, None) == "7"
