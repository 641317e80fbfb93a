"""Warns of losses that are not finite, and ends a run whose weights are so as diverged."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, final
from weakref import ref

import torch

from epochal.engine.measure.meter import EMPTY_BATCH_LOSS
from epochal.engine.optim.parameter_count import is_uninitialized
from epochal.engine.step.nonfinite_watch import DIVERGED, stop_diverged
from epochal.engine.step.updater import Updater

if TYPE_CHECKING:
    from torch import nn

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
        if name == "loss":
            run = self._run()
            assert run is not None, "its meter is in use"
            first, _ = run.nonfinite_losses or (run.step, run.step)
            run.nonfinite_losses = first, run.step
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


def end_if_diverged(run: EngineRun) -> None:
    """End a run as diverged, whatever ended it, if its weights or its last losses are not finite.

    So does a run that skipped every update of its last epoch.
    """
    if run.stop_reason == DIVERGED or run.step == run.first_step:
        return
    first, last = run.nonfinite_losses or (0, 0)
    has_guard = run.part(Updater).guard is not None
    if not _are_finite(run.model):
        what = "the weights are not finite"
        if first:
            what = f"loss and weights are not finite since about step {first}"
    elif has_guard and run.latest.get("train/skipped") == 1:
        what = "all updates of the last epoch were skipped, since no gradient was finite"
    elif last == run.step and not has_guard:
        what = f"the loss is not finite since about step {first}"
    else:
        return
    run.message = f"diverged: {what}\n  try a smaller optim.lr, or optim.clip=1.0"
    logger.error("%s", run.message)
    stop_diverged(run)


def _are_finite(model: nn.Module) -> bool:
    """Whether all trained parameters are finite; reads the device once."""
    trained = [
        one.detach()
        for one in model.parameters()
        if one.requires_grad and not is_uninitialized(one) and one.numel()
    ]
    checks = [one.isfinite().all().to(trained[0].device) for one in trained]
    return not checks or bool(torch.stack(checks).all())
