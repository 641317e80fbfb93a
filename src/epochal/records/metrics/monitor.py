"""Reads from a config which way its monitored metric is better."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Mode = Literal["min", "max"]

MONITOR_KEYS = ("monitor", "monitor.metric", "monitor.mode")
"""Config keys: ``+val/acc`` under one of the first two, or ``max`` under the last."""


def get_monitor_mode(settings: Mapping[str, object]) -> Mode:
    """Which way is better by the values of ``MONITOR_KEYS``; by default ``min``, as for a loss."""
    whole, metric, mode = (settings.get(key) for key in MONITOR_KEYS)
    sign = str(metric or whole or "")[:1]
    if sign in ("+", "-"):
        return "max" if sign == "+" else "min"
    return "max" if mode == "max" else "min"
