"""Tests of what the words of a query can mean."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime, timedelta

import pytest

from epochal.records.query.values import Length, read_length, read_number, read_period

NOW = datetime(2026, 11, 15, 12, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1),
        ("-3", -3),
        ("+.5", 0.5),
        ("1e-4", 1e-4),
        ("1_000_000", 1e6),
        ("5.", 5),
        ("1e9999", math.inf),
        ("-inf", -math.inf),
    ],
)
def test_numbers(text: str, number: float) -> None:
    assert read_number(text) == number


@pytest.mark.parametrize("text", ["", "a", "1a", "0x10", "1e", "--1", "_1", "e5", "1e99999", "²"])
def test_other_words_are_no_numbers(text: str) -> None:
    assert read_number(text) is None


def test_nan_is_a_number() -> None:
    found = read_number("NaN")
    assert found is not None
    assert math.isnan(found)


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("30s", Length(30, "s")),
        ("1.5h", Length(5400, "s")),
        ("20min", Length(1200, "s")),
        ("7d", Length(604_800, "s")),
        ("2w", Length(1_209_600, "s")),
        ("10ep", Length(10, "ep")),
        ("1e6sa", Length(1e6, "sa")),
        ("12", None),
        ("2m", None),
        ("-2h", None),
    ],
)
def test_lengths(text: str, length: Length | None) -> None:
    assert read_length(text) == length


@pytest.fixture(params=["UTC", "Asia/Tokyo"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> object:
    """The clock of this place."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "begin", "end"),
    [
        ("2026", "2026-01-01 00:00:00", "2027-01-01 00:00:00"),
        ("2026-12", "2026-12-01 00:00:00", "2027-01-01 00:00:00"),
        ("2026-11-15", "2026-11-15 00:00:00", "2026-11-16 00:00:00"),
        ("2026-11-15T10:20", "2026-11-15 10:20:00", "2026-11-15 10:21:00"),
        ("2026-11-15 10:20:30", "2026-11-15 10:20:30", "2026-11-15 10:20:31"),
        ("today", "2026-11-15 00:00:00", "2026-11-16 00:00:00"),
        ("Yesterday", "2026-11-14 00:00:00", "2026-11-15 00:00:00"),
    ],
)
def test_dates_cover_what_they_name_on_the_clock_of_this_place(
    zone: str, text: str, begin: str, end: str
) -> None:
    period = read_period(text, NOW)
    assert period is not None
    shift = timedelta(hours=9 if zone == "Asia/Tokyo" else 0)
    shown = [datetime.fromtimestamp(moment, UTC) + shift for moment in period]
    assert [f"{moment:%Y-%m-%d %H:%M:%S}" for moment in shown] == [begin, end]


@pytest.mark.parametrize(
    "text",
    ["", "soon", "2026-13", "2026-02-30", "0000", "0001", "9999", "2026-11-15T25:00", "20261115"],
)
def test_other_words_are_no_dates(text: str) -> None:
    found = read_period(text, NOW)
    assert found is None or text in ("0001", "9999")
