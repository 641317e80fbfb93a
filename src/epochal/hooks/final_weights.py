"""FinalWeights: saves the weights at the end of training."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, final

from typing_extensions import override

from epochal.checkpoint import save_weights
from epochal.checkpoint.weights import AVERAGED_WEIGHTS_FILE, FINAL_WEIGHTS_FILE
from epochal.engine.interfaces.hook import Hook
from epochal.engine.process.signals import PREEMPTED
from epochal.records.metrics.time_spent import SAVING

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    from epochal.engine import Run

logger = logging.getLogger(__name__)


@final
class FinalWeights(Hook):
    """Writes ``checkpoints/final.safetensors`` at the end of training.

    Averaged weights, if the run has them, go into ``checkpoints/final-ema.safetensors``.

    An interrupted run writes its weights too. A run that failed, was preempted, took no step or
    has no record writes none.
    """

    priority = 200
    counts_as = SAVING

    def __init__(self) -> None:
        self._has_failed = False

    @override
    def setup(self, run: Run) -> None:
        self._has_failed = False

    @override
    def error(self, run: Run, error: BaseException) -> None:
        self._has_failed = not isinstance(error, KeyboardInterrupt)

    @override
    def run_end(self, run: Run) -> None:
        if run.checkpoint_dir is None or not run.step or self._has_failed:
            return
        if run.stop_status == PREEMPTED:
            return
        facts = {
            "tag": run.tag,
            "step": str(run.step),
            "epoch": str(run.epoch),
            "meta": json.dumps(run.meta, default=str),
        }
        _save(run.checkpoint_dir / FINAL_WEIGHTS_FILE, run.model, facts)
        if run.average is not None:
            with run.average.swapped():
                _save(run.checkpoint_dir / AVERAGED_WEIGHTS_FILE, run.model, facts)


def _save(path: Path, model: nn.Module, facts: dict[str, str]) -> None:
    save_weights(path, model, metadata=facts)
    logger.debug("wrote %s", path)
