"""Splits batches into microbatches that fit into memory, with the gradient of the whole batch."""

from __future__ import annotations

import copy
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, final

import torch
from torch import nn

from epochal.engine.device.memory import find_empty_cache
from epochal.engine.device.move import batch_size
from epochal.engine.feed.split_batch import UnsplittableError, split_batches
from epochal.engine.snapshot.run_objects import find_state_tensors
from epochal.engine.snapshot.snapshot import Snapshot
from epochal.engine.step.updater import ClosureUpdater, Updater
from epochal.errors import ConfigError, DataError, Problem

if TYPE_CHECKING:
    from epochal.engine.feed.feed import Microbatches
    from epochal.engine.run.engine_run import EngineRun
    from epochal.engine.step.build_step import Update

logger = logging.getLogger(__name__)

OOM_RETRY_STEPS = 10
"""Steps at which a lack of memory leads to a retry with smaller microbatches."""

_KEY = "engine.microbatch"
_CHOICE = "microbatch"
_UPDATE_PREFIXES = ("optim.", "average.")  # tensors that only the update changes


def wrap_microbatching(run: EngineRun, update: Update) -> Update:
    """An update that splits batches as ``engine.microbatch`` says."""
    size = run.options.engine.microbatch
    if size is None:
        return update
    if size == "auto" and isinstance(run.part(Updater), ClosureUpdater):
        name = type(run.optimizer).__name__
        what = f"{name} evaluates the loss several times per step, so no size can be found"
        raise ConfigError(Problem(_KEY, what, hint="write a number of samples"))
    return MicrobatchedUpdate(update, size)


def without_oom_retry(update: Update) -> Update:
    """The same update without the retry when memory runs out."""
    return update.take_once if isinstance(update, MicrobatchedUpdate) else update


@final
class MicrobatchedUpdate:
    """Takes steps with microbatches of at most ``size`` samples; ``auto`` finds the size."""

    def __init__(self, update: Update, size: int | Literal["auto"]) -> None:
        self._update = update
        self._most = None if size == "auto" else size
        self._left = OOM_RETRY_STEPS if size == "auto" else 0
        self._has_warned = False
        self._is_updating = False  # after that the step cannot be undone

    def __call__(self, run: EngineRun, microbatches: Microbatches) -> None:
        """Take one step; undo and repeat it if memory runs out."""
        if self._left:
            self._take_with_oom_retry(run, microbatches)
        else:
            self.take_once(run, microbatches)

    def take_once(self, run: EngineRun, microbatches: Microbatches) -> None:
        """Take one step, without a retry."""
        self._update(run, self._split(run, microbatches))

    def _split(self, run: EngineRun, microbatches: Microbatches) -> Microbatches:
        # In run.choices, so that a resumed run has it once its state is restored.
        most: Any = self._most or run.choices.get(_CHOICE)
        if most is None:
            return microbatches
        try:
            chunks = split_batches(microbatches, most)
        except UnsplittableError as error:
            raise DataError(
                f"{_KEY}: a batch cannot be split into microbatches of {most}: {error}\n"
                "  give tensors with one row for each sample, or a smaller batch size"
            ) from error
        if len(chunks) > len(microbatches) and not self._has_warned:
            self._has_warned = True
            _warn_of_batchnorm(run, most)
        return chunks

    def _take_with_oom_retry(self, run: EngineRun, microbatches: Microbatches) -> None:
        snapshot, self._is_updating = _take_snapshot(run), False
        optimizer = run.optimizer
        hook = None if optimizer is None else optimizer.register_step_pre_hook(self._note_update)
        try:
            while not self._try_step(run, microbatches):
                snapshot.restore()
                run.model.zero_grad(set_to_none=True)
                empty = find_empty_cache(run.device)
                if empty is not None:
                    empty()
                self._left = OOM_RETRY_STEPS
        finally:
            if hook is not None:
                hook.remove()
        self._left -= 1
        if not self._left:
            most = run.choices.get(_CHOICE)
            found = "whole batches" if most is None else f"microbatches of {most} samples"
            logger.info("microbatch: %s fit into memory", found)

    def _note_update(self, *_: object) -> None:
        self._is_updating = True

    def _try_step(self, run: EngineRun, microbatches: Microbatches) -> bool:
        """Whether a step could be taken; if not, sets smaller microbatches for the next try.

        A separate function, so that the exception and its memory are freed on return.
        """
        parts = self._split(run, microbatches)
        try:
            self._update(run, parts)
        except torch.OutOfMemoryError as error:
            largest = max(batch_size(part) or 1 for part in parts)
            why = _explain_no_retry(microbatches, largest, is_updating=self._is_updating)
            if why:
                error.add_note(f"{_KEY}: {why}")
                raise
            run.choices[_CHOICE] = half = (largest + 1) // 2
            logger.info("microbatch: %d samples do not fit into memory; trying %d", largest, half)
            return False
        return True


def _explain_no_retry(microbatches: Microbatches, largest: int, *, is_updating: bool) -> str:
    if is_updating:
        return "memory ran out in the update of the weights, where smaller microbatches do not help"
    if largest <= 1:
        return "not even a single sample fits into memory"
    try:
        split_batches(microbatches, (largest + 1) // 2)
    except UnsplittableError as error:
        return f"the batch cannot be split: {error}"
    return ""


def _take_snapshot(run: EngineRun) -> Snapshot:
    """What a step changes before it updates the weights."""
    tensors = {
        name: tensor
        for name, tensor in find_state_tensors(run).items()
        if not name.startswith(_UPDATE_PREFIXES) and not isinstance(tensor, nn.Parameter)
    }
    snapshot = Snapshot(run, tensors)
    snapshot.add(partial(run.meter.restore_sums, run.meter.save_sums()))
    for metric in run.train_metrics.values():
        snapshot.add(partial(_restore_metric, metric, copy.deepcopy(vars(metric))))
    for name in ("stop_reason", "stop_status"):
        snapshot.add(partial(setattr, run, name, getattr(run, name)))
    return snapshot


def _restore_metric(metric: object, attributes: dict[str, Any]) -> None:
    vars(metric).clear()
    vars(metric).update(copy.deepcopy(attributes))


def _warn_of_batchnorm(run: EngineRun, most: int) -> None:
    norms = (one for one in run.model.modules() if getattr(one, "track_running_stats", False))
    norm = next(norms, None)
    if norm is not None:
        logger.warning(
            "microbatch: %s computes its statistics over %d samples instead of whole batches",
            type(norm).__name__,
            most,
        )
