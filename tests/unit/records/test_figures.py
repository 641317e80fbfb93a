"""Durations and values in mail; tests/unit/experiment/test_figures.py has the details."""

from __future__ import annotations

from epochal.records.figures import format_seconds, format_value


def test_figures_are_short() -> None:
    assert (format_seconds(7500), format_value(0.123456)) == ("2 h 5 min", "0.1235")
