"""Tests of tables and of short texts for cells."""

from __future__ import annotations

import pytest

from epochal.cli.table import format_count, format_seconds, format_table, format_value


def test_columns_are_as_wide_as_they_need() -> None:
    assert format_table(("run", "x"), [("a", "1"), ("longer", "22")], width=80) == (
        "run     x\na       1\nlonger  22"
    )


def test_lines_end_where_the_terminal_ends() -> None:
    text = format_table(("run", "result"), [("a", "long " * 30)], width=20)
    assert [len(line) for line in text.splitlines()] == [11, 20]
    assert text.endswith("…")


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
