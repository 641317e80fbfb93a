"""The runner of ``epochal evaluate``: evaluates the checkpoints of another run as they appear."""

from __future__ import annotations

import logging
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, final

from typing_extensions import override

from epochal.checkpoint.run_weights import RunWeights
from epochal.engine.evaluate import evaluate
from epochal.engine.process.signals import is_interrupted_or_preempted
from epochal.engine.runner import Test
from epochal.errors import CheckpointError
from epochal.records.folder.checkpoint_manifests import find_checkpoints
from epochal.records.folder.folder import CHECKPOINTS_DIR
from epochal.records.folder.reader import read_folder
from epochal.records.layout.run_status import ACTIVE_STATUSES

if TYPE_CHECKING:
    from epochal.engine.run.engine_run import EngineRun
    from epochal.records.folder.checkpoint_manifests import CheckpointManifest

_POLL_SECONDS = 0.2  # between two checks for signals
logger = logging.getLogger(__name__)


@final
class Watch(Test):
    """Evaluates each checkpoint of another run, at its step; needs no optimizer.

    Args:
        run: The folder of that run; nothing is written there.
        split: The split to evaluate.
        is_once: Evaluate the checkpoints that exist, and end; otherwise end with that run.
        every_seconds: How often to look for new checkpoints.
    """

    def __init__(
        self,
        *,
        run: str,
        split: str = "val",
        is_once: bool = False,
        every_seconds: float = 5.0,
    ) -> None:
        super().__init__(split=split)
        self._folder = Path(run)
        self._is_once, self._every_seconds = is_once, every_seconds
        self._seen: set[tuple[str, int]] = set()

    @override
    def run(self, run: EngineRun) -> dict[str, float]:
        metrics: dict[str, float] = {}
        while not is_interrupted_or_preempted(run):
            # Asked first: what is saved before a run ends is found afterwards.
            has_ended = read_folder(self._folder).summary.status not in ACTIVE_STATUSES
            for checkpoint in self._find_new():
                metrics = self._evaluate(run, checkpoint) or metrics
                if is_interrupted_or_preempted(run):
                    return metrics
            if self._is_once or has_ended:
                break
            self._wait(run)
        if not self._seen:
            raise CheckpointError(
                f"{self._folder}: has no checkpoint to evaluate\n"
                "  `checkpoint.every` says how often a run saves one"
            )
        return metrics

    def _find_new(self) -> list[CheckpointManifest]:
        found = sorted(find_checkpoints(self._folder / CHECKPOINTS_DIR), key=lambda one: one.step)
        new = [one for one in found if (one.name, one.step) not in self._seen]
        self._seen |= {(one.name, one.step) for one in new}
        return new

    def _evaluate(self, run: EngineRun, checkpoint: CheckpointManifest) -> dict[str, float]:
        try:
            RunWeights(checkpoint.path, checkpoint.name, checkpoint).load_into(run.model)
        except (CheckpointError, OSError):
            if checkpoint.path.exists():
                raise
            logger.info("%s: was removed before it could be evaluated", checkpoint.name)
            return {}
        run.step, run.epoch = checkpoint.step, checkpoint.epoch
        return evaluate(run, self.split)

    def _wait(self, run: EngineRun) -> None:
        end = monotonic() + self._every_seconds
        while monotonic() < end and not is_interrupted_or_preempted(run):
            sleep(_POLL_SECONDS)
        run.batch_index += 1  # else the watchdog takes waiting for a hang
