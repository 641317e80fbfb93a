"""Says once when a training loss stops being a number."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, final
from weakref import ref

from epochal.engine.meters import LOSS_OF_NOTHING

if TYPE_CHECKING:
    from epochal.engine.run import Run

logger = logging.getLogger(__name__)


@final
class LossWatch:
    """Hears of means that are not finite, when somebody reads them anyway.

    Args:
        run: The run whose position the warning names.
    """

    def __init__(self, run: Run) -> None:
        self._run = ref(run)  # whose meter holds this
        self._warned: set[bool] = set()

    def __call__(self, name: str, mean: float) -> None:
        """Warn of the first loss among such means, and of the first one of an empty batch."""
        is_empty = name == LOSS_OF_NOTHING
        if is_empty in self._warned or "loss" not in name:
            return
        self._warned.add(is_empty)
        run = self._run()
        assert run is not None, "its meter is read"
        if run.updater.guard is not None:
            what = "such updates are left out, and train/skipped is their share"
        elif is_empty:
            what = "its gradient may be so too; divide by count.clamp(min=1)"
        else:
            what = (
                "the run goes on, but hardly learns any more; "
                "try a smaller optim.lr, or optim.clip=1.0"
            )
        logger.warning("train/%s is %s since about step %d: %s", name, mean, run.step, what)
