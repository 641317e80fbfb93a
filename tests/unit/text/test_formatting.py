"""Tests of numbers, durations, counts and sizes as text."""

from __future__ import annotations

import math

from epochal.text.formatting import (
    format_bytes,
    format_count,
    format_rate,
    format_seconds,
    format_value,
)


def test_numbers_are_formatted_for_people() -> None:
    for text, expected in (
        (format_value(None), ""),
        (format_value(0.123456), "0.1235"),
        (format_value(1e-9), "1e-09"),
        (format_value(3), "3"),
        (format_value("a"), "a"),
        (format_value(float("nan")), "nan"),
        (format_seconds(0.04), "0.0 s"),
        (format_seconds(9.96), "10.0 s"),
        (format_seconds(42), "42 s"),
        (format_seconds(59.9), "60 s"),
        (format_seconds(200), "3 min 20 s"),
        (format_seconds(7500), "2 h 5 min"),
        (format_seconds(100 * 3600), "4 d 4 h"),
        (format_count(0, "step"), "0 steps"),
        (format_count(1, "step"), "1 step"),
        (format_count(12345, "step"), "12,345 steps"),
        (format_count(2, "batch"), "2 batches"),
        (format_count(2, "epoch"), "2 epochs"),
        (format_bytes(0), "0 B"),
        (format_bytes(999), "999 B"),
        (format_bytes(1500), "1.5 kB"),
        (format_bytes(2e9), "2.0 GB"),
        (format_bytes(3.25e15), "3250.0 TB"),
    ):
        assert text == expected


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
