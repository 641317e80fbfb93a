"""The statuses of runs by what they mean, and the runners of runs that are no trainings."""

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

EVALUATIONS = ("test", "predict", "watch")
"""The runners of runs that only evaluate: they are started again, and never resumed."""
