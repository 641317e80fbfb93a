"""The statuses of a run, and which of them mean that it works, has ended, or has a result."""

from __future__ import annotations

from typing import Literal

Status = Literal[
    "starting", "running", "finished", "stopped", "failed", "diverged", "interrupted", "preempted"
]
ACTIVE_STATUSES: tuple[Status, ...] = ("starting", "running")
"""A process works on the run, unless it was killed."""

COMPLETED_STATUSES: tuple[Status, ...] = ("finished", "stopped")
"""The run reached its planned end or was stopped early, and its result counts."""

ENDED_STATUSES: tuple[Status, ...] = (
    *COMPLETED_STATUSES,
    "failed",
    "diverged",
    "interrupted",
    "preempted",
)
