"""Whether a run that ended is started again, when, and when to give up."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import final

from typing_extensions import override

SUCCESS = 0
PREEMPTED = 75
FINAL = {2: "the command line", 66: "a missing file", 78: "the config", 130: "Ctrl-C"}
"""Exit codes that another start would not change, and what they are about."""

CRASH_LOOP = 3
"""How often a run may fail at the same step."""

_LONGEST_DELAY_SECONDS = 60.0


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """How one process of a run ended."""

    code: int
    """Its exit code, or minus the signal that ended it."""

    step: int = 0
    """The last step that it reported."""

    begun: int = 0
    """The step at which it began."""

    saved: int = 0
    """The step of the newest checkpoint."""

    error: str = ""
    """What it reported, in one line."""

    @property
    def has_progressed(self) -> bool:
        """Whether another start would begin at a later step than this one did."""
        return self.saved > self.begun

    @override
    def __str__(self) -> str:
        if self.code < 0:
            how = f"was killed by {signal_name(-self.code)}"
        elif self.code == PREEMPTED:
            how = "was preempted"
        else:
            how = f"ended with code {self.code}"
        return f"{how} at step {self.step}" + (f" ({self.error})" if self.error else "")


@final
@dataclass(frozen=True, slots=True)
class Decision:
    """What follows from an ending."""

    is_again: bool
    why: str = ""
    delay_seconds: float = 0.0
    is_surrender: bool = False
    """Whether it is given up although it should have gone on."""


@final
class Restarts:
    """Judges one ending after the other.

    Args:
        limit: How many starts in a row may bring a run no further.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._fruitless = 0
        self._failed_at: int | None = None
        self._num_failed_there = 0

    def judge(self, ending: Ending) -> Decision:
        """Start again or not."""
        if ending.code == SUCCESS or ending.code in FINAL:
            what = FINAL.get(ending.code, "anything")
            return Decision(False, f"another start would not change {what}")
        if ending.code == PREEMPTED:
            return Decision(True, "it goes on", 1.0)
        return self._judge_crash(ending)

    def _judge_crash(self, ending: Ending) -> Decision:
        self._count(ending)
        if self._num_failed_there >= CRASH_LOOP:
            why = f"it failed {self._num_failed_there} times at step {ending.step}"
            return Decision(False, why, is_surrender=True)
        if self._fruitless > self._limit:
            why = f"{self._limit} restarts brought it no further than step {ending.saved}"
            return Decision(False, why, is_surrender=True)
        delay = min(2.0 ** max(self._fruitless - 1, 0), _LONGEST_DELAY_SECONDS)
        count = f", {self._fruitless} of {self._limit} without progress" if self._fruitless else ""
        return Decision(True, f"starting again in {delay:.0f} s{count}", delay)

    def _count(self, ending: Ending) -> None:
        self._fruitless = 0 if ending.has_progressed else self._fruitless + 1
        if ending.code < 0:  # it could not say at which step
            return
        is_same = ending.step == self._failed_at
        self._num_failed_there = self._num_failed_there + 1 if is_same else 1
        self._failed_at = ending.step


def signal_name(number: int) -> str:
    """``SIGKILL`` and the like."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
