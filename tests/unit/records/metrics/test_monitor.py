"""Tests of epochal.records.metrics.monitor."""

from __future__ import annotations

import pytest

from epochal.records.metrics.monitor import get_monitor_mode


@pytest.mark.parametrize(
    ("settings", "mode"),
    [
        ({"monitor": "+val/acc"}, "max"),
        ({"monitor": "-val/acc"}, "min"),
        ({"monitor.metric": "+val/acc", "monitor.mode": None}, "max"),
        ({"monitor.metric": "val/acc", "monitor.mode": "max"}, "max"),
        ({"monitor.metric": "val/acc", "monitor.mode": "min"}, "min"),
        ({"monitor": None}, "min"),
        ({}, "min"),
    ],
)
def test_a_config_says_which_way_is_better(settings: dict[str, object], mode: str) -> None:
    assert get_monitor_mode(settings) == mode
