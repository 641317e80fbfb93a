"""Whether an error left a run as it was between two steps, so that its state can be saved."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from epochal.engine.events.step_plan import Plan
from epochal.engine.feed.feed import Feed
from epochal.engine.loop import take_steps

if TYPE_CHECKING:
    from types import CodeType

_BOUNDARIES = (Plan.run_due.__code__, Plan.run_due_between_epochs.__code__)


def is_between_steps(error: BaseException) -> bool:
    """Whether an error came from the data of the next step, or from what is due at a boundary.

    In both cases nothing has changed that a step depends on, and what failed is done again by a
    run that goes on from here. In the midst of a step there is no such state: weights may be new
    already, or random numbers drawn.
    """
    codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    return _comes_from_data(codes) or any(code in _BOUNDARIES for code in codes)


def _comes_from_data(codes: list[CodeType]) -> bool:
    if take_steps.__code__ not in codes:
        return False
    place = codes.index(take_steps.__code__) + 1
    return place < len(codes) and codes[place] is Feed.epoch.__code__
