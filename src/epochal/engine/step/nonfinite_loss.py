"""Warns of losses that are not finite."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, final
from weakref import ref

from epochal.engine.measure.meter import EMPTY_BATCH_LOSS
from epochal.engine.step.updater import Updater

if TYPE_CHECKING:
    from epochal.engine.run.engine_run import EngineRun

logger = logging.getLogger(__name__)


@final
class NonfiniteLossWarner:
    """Warns once of losses that are not finite, when their means are read.

    Args:
        run: The warning names its step.
    """

    def __init__(self, run: EngineRun) -> None:
        self._run = ref(run)  # the meter of the run holds this object
        self._warned: set[bool] = set()

    def __call__(self, name: str, mean: float) -> None:
        """Warn of the first loss that is not finite, and of the first one of an empty batch."""
        is_empty = name == EMPTY_BATCH_LOSS
        if is_empty in self._warned or "loss" not in name:
            return
        self._warned.add(is_empty)
        run = self._run()
        assert run is not None, "its meter is in use"
        if run.part(Updater).guard is not None:
            what = "such updates are skipped; train/skipped is their share"
        elif is_empty:
            what = "its gradient may be so too; divide by count.clamp(min=1)"
        else:
            what = (
                "the run continues, but will hardly learn; "
                "try a smaller optim.lr, or optim.clip=1.0"
            )
        logger.warning("train/%s is %s since about step %d: %s", name, mean, run.step, what)
