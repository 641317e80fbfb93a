"""Tests of numbers with their units."""

from __future__ import annotations

import pytest

from epochal.text.formatting import format_bytes, format_count, format_seconds, format_value


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, ""),
        (0.123456, "0.1235"),
        (1e-9, "1e-09"),
        (3, "3"),
        ("a", "a"),
        (float("nan"), "nan"),
    ],
)
def test_values_are_short(value: object, shown: str) -> None:
    assert format_value(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.04, "0.0 s"),
        (9.96, "10.0 s"),
        (42, "42 s"),
        (59.9, "60 s"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
        (100 * 3600, "4 d 4 h"),
    ],
)
def test_durations_read_as_people_say_them(seconds: float, shown: str) -> None:
    assert format_seconds(seconds) == shown


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0 steps"), (1, "1 step"), (2, "2 steps"), (12345, "12,345 steps")]
)
def test_counts_agree_with_their_noun(count: int, shown: str) -> None:
    assert format_count(count, "step") == shown


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2e9, "2.0 GB"), (3.25e15, "3250.0 TB")],
)
def test_sizes_have_a_unit_that_suits_them(size: float, text: str) -> None:
    assert format_bytes(size) == text
