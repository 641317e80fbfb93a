"""Tests of reading the values of queries."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime, timedelta

import pytest

from epochal.records.query.syntax import Quantity, read_number, read_period, read_quantity

NOW = datetime(2026, 11, 15, 12, 30, tzinfo=UTC)


def test_numbers() -> None:
    numbers = {
        "1": 1, "-3": -3, "+.5": 0.5, "1e-4": 1e-4, "1_000_000": 1e6, "5.": 5, "1e9999": math.inf,
        "-inf": -math.inf,
    }  # fmt: skip
    assert {text: read_number(text) for text in numbers} == numbers
    others = ("", "a", "1a", "0x10", "1e", "--1", "_1", "e5", "1e99999", "²")
    assert [text for text in others if read_number(text) is not None] == []


def test_nan_is_a_number() -> None:
    found = read_number("NaN")
    assert found is not None
    assert math.isnan(found)


def test_quantities() -> None:
    quantities = {
        "30s": Quantity(30, "s"),
        "1.5h": Quantity(5400, "s"),
        "20min": Quantity(1200, "s"),
        "7d": Quantity(604_800, "s"),
        "2w": Quantity(1_209_600, "s"),
        "10ep": Quantity(10, "ep"),
        "1e6sa": Quantity(1e6, "sa"),
        "12": None,
        "2m": None,
        "-2h": None,
    }
    assert {text: read_quantity(text) for text in quantities} == quantities


@pytest.fixture(params=["UTC", "Asia/Tokyo"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> object:
    """The local time zone."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


DATES = [
    ("2026", "2026-01-01 00:00:00", "2027-01-01 00:00:00"),
    ("2026-12", "2026-12-01 00:00:00", "2027-01-01 00:00:00"),
    ("2026-11-15", "2026-11-15 00:00:00", "2026-11-16 00:00:00"),
    ("2026-11-15T10:20", "2026-11-15 10:20:00", "2026-11-15 10:21:00"),
    ("2026-11-15 10:20:30", "2026-11-15 10:20:30", "2026-11-15 10:20:31"),
    ("today", "2026-11-15 00:00:00", "2026-11-16 00:00:00"),
    ("Yesterday", "2026-11-14 00:00:00", "2026-11-15 00:00:00"),
]


def test_dates_cover_a_period_in_the_local_time_zone(zone: str) -> None:
    shift = timedelta(hours=9 if zone == "Asia/Tokyo" else 0)
    for text, begin, end in DATES:
        period = read_period(text, NOW)
        assert period is not None, text
        shown = [datetime.fromtimestamp(moment, UTC) + shift for moment in period]
        assert [f"{moment:%Y-%m-%d %H:%M:%S}" for moment in shown] == [begin, end], text


def test_other_words_are_no_dates() -> None:
    others = ("", "soon", "2026-13", "2026-02-30", "0000", "2026-11-15T25:00", "20261115")
    assert [text for text in others if read_period(text, NOW) is not None] == []
    for text in ("0001", "9999"):  # some platforms cannot represent these years
        read_period(text, NOW)
