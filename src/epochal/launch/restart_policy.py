"""Decides whether an ended run is restarted, after which delay, and when to give up."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import final

from typing_extensions import override

from epochal.errors import (
    INTERRUPTED_EXIT_CODE,
    PREEMPTED_EXIT_CODE,
    RANK_LOST_EXIT_CODE,
    STALLED_EXIT_CODE,
    ConfigError,
    DivergedError,
    LeaseLostError,
    MissingFileError,
)

SUCCESS = 0
FINAL_EXIT_CODES = {
    2: "the command line",
    MissingFileError.exit_code: "a missing file",
    LeaseLostError.exit_code: "that the run lost its folder",
    ConfigError.exit_code: "the config",
    DivergedError.exit_code: "that",
    INTERRUPTED_EXIT_CODE: "Ctrl-C",
}
"""Exit codes that a restart would not change, and their causes."""

DEFAULT_RESTARTS = 10
"""After how many starts in a row without progress a run is given up, unless a user says."""

CRASH_LOOP = 3
"""How often in a row a run may die at the same step, by an error, a hang or a signal."""

_MAX_DELAY_SECONDS = 60.0


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessExit:
    """How one process of a run ended."""

    code: int
    """Its exit code, or minus the signal that killed it."""

    step: int = 0
    """The last step that it reported."""

    first_step: int = 0
    """The step at which it started."""

    saved_step: int = 0
    """The step of the newest checkpoint."""

    error: str = ""
    """The error that it reported, in one line."""

    @property
    def has_progressed(self) -> bool:
        """Whether a restart would begin at a later step than this process did."""
        return self.saved_step > self.first_step

    @override
    def __str__(self) -> str:
        if self.code < 0:
            how = f"was killed by {_signal_name(-self.code)}"
        elif self.code == PREEMPTED_EXIT_CODE:
            how = "was preempted"
        elif self.code == DivergedError.exit_code:
            how = "diverged"
        elif self.code == STALLED_EXIT_CODE:
            how = "hung"
        elif self.code == RANK_LOST_EXIT_CODE:
            how = "lost the connection to another process or machine"
        else:
            how = f"ended with code {self.code}"
        return f"{how} at step {self.step}" + (f" ({self.error})" if self.error else "")


@final
@dataclass(frozen=True, slots=True)
class RestartDecision:
    """What to do after a process ended."""

    should_restart: bool
    why: str = ""
    delay_seconds: float = 0.0
    has_given_up: bool = False
    """Whether an unfinished run is not restarted because restarts did not help."""


@final
class RestartPolicy:
    """Decides after each exit of a run's processes; gives up after ``limit`` without progress."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._num_without_progress = 0
        self._failed_step: int | None = None
        self._num_failures_at_step = 0

    def decide(self, end: ProcessExit) -> RestartDecision:
        """Whether and when to restart."""
        if end.code == SUCCESS or end.code in FINAL_EXIT_CODES:
            what = FINAL_EXIT_CODES.get(end.code, "anything")
            return RestartDecision(False, f"another start would not change {what}")
        if end.code == PREEMPTED_EXIT_CODE:
            return RestartDecision(True, "resuming it", 1.0)
        return self._decide_after_crash(end)

    def _decide_after_crash(self, end: ProcessExit) -> RestartDecision:
        if self._limit <= 0:
            return RestartDecision(False, "restarts are turned off", has_given_up=True)
        self._count(end)
        if self._num_failures_at_step >= CRASH_LOOP:
            why = f"it died {self._num_failures_at_step} times in a row at step {end.step}"
            return RestartDecision(False, why, has_given_up=True)
        count, limit = self._num_without_progress, self._limit
        if count > limit:
            restarts = "1 restart" if limit == 1 else f"{limit} restarts"
            why = f"{restarts} made no progress beyond step {end.saved_step}"
            return RestartDecision(False, why, has_given_up=True)
        delay = min(2.0 ** max(count - 1, 0), _MAX_DELAY_SECONDS)
        note = f", {count} of {limit} without progress" if count else ""
        return RestartDecision(True, f"starting again in {delay:.0f} s{note}", delay)

    def _count(self, end: ProcessExit) -> None:
        self._num_without_progress = 0 if end.has_progressed else self._num_without_progress + 1
        is_same = end.step == self._failed_step
        self._num_failures_at_step = self._num_failures_at_step + 1 if is_same else 1
        self._failed_step = end.step


def _signal_name(number: int) -> str:
    """``SIGKILL`` and the like."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
