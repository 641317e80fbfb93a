"""Tests of epochal.records.metrics.monitor."""

from __future__ import annotations

from epochal.records.metrics.monitor import get_monitor_mode


def test_a_config_says_which_way_is_better() -> None:
    for settings, mode in [
        ({"monitor": "+val/acc"}, "max"),
        ({"monitor": "-val/acc"}, "min"),
        ({"monitor.metric": "+val/acc", "monitor.mode": None}, "max"),
        ({"monitor.metric": "val/acc", "monitor.mode": "max"}, "max"),
        ({"monitor.metric": "val/acc", "monitor.mode": "min"}, "min"),
        ({"monitor": None}, "min"),
        ({}, "min"),
    ]:
        assert get_monitor_mode(settings) == mode
