"""The largest microbatch that fits into memory, found by real steps that leave no trace."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import torch
from typing_extensions import override

from epochal.checkpoint import join, snapshot
from epochal.engine.chunks import UnsplittableError, resize_batch
from epochal.engine.exhausted import is_out_of_memory
from epochal.engine.memory import find_emptier
from epochal.engine.runner import Runner
from epochal.engine.saved import collect, restore
from epochal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

    from epochal.engine.run import Run
    from epochal.engine.task import Batch

logger = logging.getLogger(__name__)

STEPS = 2
"""Steps of each size: the first one alone has no state of the optimizer before it."""


@final
@dataclass(frozen=True, slots=True)
class Try:
    """One size that was tried."""

    samples: int
    fits: bool
    peak: int | None = None
    """The most bytes that tensors took on the device; None where nobody counts."""


@final
class Largest(Runner):
    """Looks for the most samples that a step can have; its value is every try, in order.

    Args:
        runner: Takes the steps.
        limit: The most samples to try.
    """

    def __init__(self, runner: Runner, *, limit: int) -> None:
        self._runner = runner
        self._limit = limit
        self.needs_optimizer = runner.needs_optimizer

    @override
    def prepare(self, run: Run) -> None:
        self._runner.prepare(run)

    @override
    def run(self, run: Run) -> list[Try]:
        steps = run.feed.epoch(0)
        batch = next(steps)[0]
        del steps  # nobody reads on
        _require_rows(batch)
        state = snapshot(collect(run))
        tries: list[Try] = []

        def fits(samples: int) -> bool:
            tries.append(self._try(run, batch, samples))
            return tries[-1].fits

        try:
            search(fits, self._limit)
        finally:
            run.model.zero_grad(set_to_none=True)
            restore(run, join(state.plain, state.tensors))
        return tries

    def _try(self, run: Run, batch: Batch, samples: int) -> Try:
        is_on_cuda = run.device.type == "cuda"
        if is_on_cuda:
            torch.cuda.reset_peak_memory_stats(run.device)
        fits = self._takes_steps(run, batch, samples)
        peak = torch.cuda.max_memory_allocated(run.device) if is_on_cuda else None
        run.model.zero_grad(set_to_none=True)
        empty = find_emptier(run.device)
        if empty is not None:
            empty()
        logger.info("%d samples %s", samples, "fit" if fits else "do not fit")
        return Try(samples, fits, peak if fits else None)

    def _takes_steps(self, run: Run, batch: Batch, samples: int) -> bool:
        """Whether steps with so many samples work; what failed is let go of when this returns."""
        try:
            for _ in range(STEPS):
                self._runner.train_step(run, (resize_batch(batch, samples),))
            if run.device.type == "cuda":
                torch.cuda.synchronize(run.device)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error) and "can't allocate memory" not in str(error):
                raise
            return False
        return True


def search(fits: Callable[[int], bool], limit: int) -> int:
    """The largest number up to ``limit`` that fits, by doubling and then halving the gap; 0: none.

    >>> search(lambda samples: samples <= 37, 100)
    37
    """
    good, size = 0, min(2, limit)  # batch norm trains on two samples at least
    while fits(size):
        good = size
        if size == limit:
            return good
        size = min(2 * size, limit)
    bad = size
    while bad - good > 1:
        middle = (good + bad) // 2
        if fits(middle):
            good = middle
        else:
            bad = middle
    return good


def _require_rows(batch: Batch) -> None:
    try:
        resize_batch(batch, 1)
    except UnsplittableError as error:
        raise DataError(
            f"train_loader: its batches cannot be made of other sizes: {error}\n"
            "  give tensors with one row for each sample"
        ) from error
