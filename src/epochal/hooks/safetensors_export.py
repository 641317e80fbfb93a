"""FinalWeights and SafetensorsExport: write the model's weights at the end and periodically."""

from __future__ import annotations

import json
import logging
from contextlib import nullcontext
from typing import TYPE_CHECKING, final

from typing_extensions import override

from epochal import durable
from epochal.checkpoint import save_weights
from epochal.checkpoint.weights import (
    AVERAGED_WEIGHTS_FILE,
    FINAL_WEIGHTS_FILE,
    gather_weights,
)
from epochal.config.checkpoint_name import check_template, fill_template
from epochal.engine.interfaces.every import Every
from epochal.engine.interfaces.hook import Hook
from epochal.engine.process.signals import PREEMPTED
from epochal.engine.run.engine_run import engine_run
from epochal.engine.state.saver import fresh_metrics
from epochal.engine.step.finite_weights import has_finite_weights
from epochal.errors import ConfigError, Problem
from epochal.records.metrics.time_spent import SAVING
from epochal.records.secrets import redact_tree

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor, nn

    from epochal.engine.interfaces.run import Run

logger = logging.getLogger(__name__)


@final
class SafetensorsExport(Hook):
    """Writes ``safetensors/<name>.safetensors`` into the run's folder periodically.

    Its metadata has tag, step, epoch and the task's ``meta``. It has no optimizer state: use
    checkpoints to resume. ``every`` is 1ep unless it is given.

    Args:
        name: File name from {tag}, {step}, {epoch}, {samples} and metrics such as {val/acc:.3f}.
        keep: How many of the newest files are kept; null keeps all.
        averaged: Write the averaged weights instead, if the run has them.
    """

    priority = 200
    runners = ("train",)
    counts_as = SAVING
    every = Every(1, "ep")

    def __init__(
        self, *, name: str = "{tag}-{step}", keep: int | None = None, averaged: bool = False
    ) -> None:
        try:
            check_template(name)
        except ValueError as error:
            what, _, hint = str(error).partition("\n")
            raise ConfigError(Problem("SafetensorsExport.name", what, hint=hint)) from error
        if keep is not None and keep < 1:
            what = f"must be at least 1, got {keep!r}"
            raise ConfigError(Problem("SafetensorsExport.keep", what, hint="`keep: 1`"))
        self._name = name
        self._keep = keep
        self._is_averaged = averaged
        self._written: list[str] = []

    @override
    def setup(self, run: Run) -> None:
        self._written = []

    @override
    def step_end(self, run: Run) -> None:
        if run.dir is None and not _adds_parts(run):
            return
        path = None if run.dir is None else self._find_path(run, run.dir)
        is_averaged = self._is_averaged and run.average is not None
        with run.average.swapped() if is_averaged and run.average else nullcontext():
            _save(path, run)
        if path is not None:
            self._delete_old(path)

    def _find_path(self, run: Run, folder: Path) -> Path:
        position = {"step": run.step, "epoch": run.epoch, "samples": run.samples}
        values = {"tag": run.tag, **position, **run.latest, **fresh_metrics(engine_run(run))}
        path = folder / "safetensors" / f"{fill_template(self._name, values)}.safetensors"
        if not path.parent.is_dir():
            durable.make_dir(path.parent)
        return path

    def _delete_old(self, path: Path) -> None:
        self._written = [one for one in self._written if one != path.name] + [path.name]
        while self._keep is not None and len(self._written) > self._keep:
            path.with_name(self._written.pop(0)).unlink(missing_ok=True)

    def state_dict(self) -> dict[str, list[str]]:
        """The files that were written, so that a resumed run deletes old ones."""
        return {"written": self._written}

    def load_state_dict(self, state: dict[str, list[str]]) -> None:
        """Continue with the files of the run so far."""
        self._written = list(state["written"])


@final
class FinalWeights(Hook):
    """Writes ``checkpoints/final.safetensors`` at the end of training.

    Averaged weights, if the run has them, go into ``checkpoints/final-ema.safetensors``.

    An interrupted run writes its weights too. A run that failed, was preempted, took no step, has
    no record, or whose weights are not finite writes none.
    """

    priority = 200
    runners = ("train",)
    counts_as = SAVING

    def __init__(self) -> None:
        self._has_failed = False

    @override
    def setup(self, run: Run) -> None:
        self._has_failed = False

    @override
    def error(self, run: Run, error: BaseException) -> None:
        # Processes that have parts of the weights can no longer wait for each other.
        is_sharded = engine_run(run).strategy.is_sharded
        self._has_failed = is_sharded or not isinstance(error, KeyboardInterrupt)

    @override
    def run_end(self, run: Run) -> None:
        folder = run.checkpoint_dir
        is_needed = run.is_main or _adds_parts(run)
        if folder is None or not is_needed or not run.step or self._has_failed:
            return
        if run.stop_status == PREEMPTED:
            return
        if not has_finite_weights(run):
            logger.warning("%s is not written: the weights are not finite", FINAL_WEIGHTS_FILE)
            return
        _save(folder / FINAL_WEIGHTS_FILE if run.is_main else None, run)
        if run.average is not None:
            with run.average.swapped():
                _save(folder / AVERAGED_WEIGHTS_FILE if run.is_main else None, run)


def _adds_parts(run: Run) -> bool:
    """Whether this process has a part of the weights that the main one writes."""
    is_sharded = engine_run(run).strategy.is_sharded
    return is_sharded and not run.is_main and run.checkpoint_dir is not None


def _save(path: Path | None, run: Run) -> None:
    """Write the weights; a process without a path only adds its parts of them."""
    weights: nn.Module | dict[str, Tensor] = run.model
    if engine_run(run).strategy.is_sharded:
        weights = gather_weights(run.model, is_main=run.is_main)
    if path is None:
        return
    # Weights are often published: values of the task must not contain a password.
    plain = redact_tree({"tag": run.tag, "meta": json.loads(json.dumps(run.meta, default=str))})
    facts = {"tag": plain["tag"], "step": str(run.step), "epoch": str(run.epoch)}
    save_weights(path, weights, metadata={**facts, "meta": json.dumps(plain["meta"])})
    logger.debug("wrote %s", path)
