"""Finds the largest batch that fits into memory; records nothing."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, final

import torch
from typing_extensions import Unpack, override

from epochal.check import SECTIONS
from epochal.engine.device.memory import find_empty_cache, is_out_of_memory
from epochal.engine.execute import execute
from epochal.engine.feed.split_batch import UnsplittableError, resize_batch
from epochal.engine.runner import Runner
from epochal.engine.snapshot.snapshot import take_whole_snapshot
from epochal.errors import ConfigError, DataError, Problem, TaskError
from epochal.experiment.config.choices import check_choices
from epochal.experiment.experiment import Experiment, load_experiment
from epochal.experiment.run_experiment import build_unrecorded_run
from epochal.experiment.tools.profile import disable_evaluation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from epochal.engine import RunResult
    from epochal.engine.interfaces.task import Batch
    from epochal.engine.run.engine_run import EngineRun
    from epochal.experiment.config.choices import Choices

logger = logging.getLogger(__name__)

MAX_SAMPLES = 65_536
"""The largest size to try if there is no limit and the data has no length."""

_MIN_ROUNDED = 16  # from here on, the suggested size is a multiple of eight


@final
@dataclass(frozen=True)
class BatchSearchResult:
    """Every size that was tried, and the largest that fits."""

    tag: str
    device: str
    tries: tuple[BatchTry, ...]
    batch_size: int | None
    """The batch size of the config, if the loader has one."""

    limit: int
    """The largest size to try."""

    result: RunResult
    """How the search ended."""

    @property
    def samples(self) -> int:
        """The most samples that fit; 0 if none fit."""
        return max((one.samples for one in self.tries if one.fits), default=0)

    @property
    def advice(self) -> int:
        """The batch size to use: the most samples, rounded down to a multiple of eight."""
        return self.samples - self.samples % 8 if self.samples >= _MIN_ROUNDED else self.samples

    @property
    def bytes_per_sample(self) -> float | None:
        """The device memory of each further sample, if it was measured."""
        peaks = sorted({one.samples: one.peak for one in self.tries if one.peak}.items())
        if len(peaks) < 2:
            return None
        (few, least), (many, most) = peaks[0], peaks[-1]
        return (most - least) / (many - few)

    def to_json(self) -> dict[str, Any]:
        """The same as plain values."""
        names = ("tag", "device", "batch_size", "limit", "samples", "advice", "bytes_per_sample")
        return {name: getattr(self, name) for name in names} | {
            "tries": [asdict(one) for one in self.tries]
        }


def find_batch(
    source: object,
    *,
    limit: int | None = None,
    overrides: Sequence[str] = (),
    **choices: Unpack[Choices],
) -> BatchSearchResult:
    """The most samples that fit into memory at once, tried with steps on real data.

    Model, optimizer and random generators are restored afterwards.

    Args:
        source: A config as ``ep.run`` takes it, or an ``Experiment``.
        limit: The most samples to try; by default as many as the training data has.
        overrides: Changes such as ``optim.lr=1e-3``.
        choices: What belongs to this search alone; see ``Choices``.

    Raises:
        ConfigError: The config has mistakes, or the device is a CPU and there is no limit.
        TaskError: The config does not train.
    """
    check_choices(choices, sections=SECTIONS)
    if limit is not None and limit < 1:
        what = f"must be at least 1, got {limit}"
        raise ConfigError(Problem("--limit", what, hint="write --limit 1024"))
    experiment = source
    if not isinstance(experiment, Experiment):
        experiment = load_experiment(source, overrides=overrides, choices=choices)
    run, runner, _ = build_unrecorded_run(experiment, experiment.inputs, is_quiet=True)
    if run.optimizer is None and not runner.needs_optimizer:
        raise TaskError(
            "runner: takes no steps, so there is no batch to find\n"
            "  name a config that trains, or set runner=train"
        )
    if run.device.type == "cpu" and limit is None:
        what = "needs a device with its own memory: a CPU would fill that of the machine"
        raise ConfigError(Problem("find-batch", what, hint="use --device cuda, or --limit SAMPLES"))
    disable_evaluation(run)
    loader = run.feed.loader
    most = limit or run.feed.samples_per_epoch or MAX_SAMPLES
    size = getattr(loader, "batch_size", None)
    tag, device = run.tag, str(run.device)
    result = execute(run, LargestBatchSearch(runner, limit=most), raise_errors=True)
    return BatchSearchResult(tag, device, tuple(result.value), size, most, result)


STEPS_PER_TRY = 2
"""Steps of each size: the first one allocates the optimizer's state only at its end."""


@final
@dataclass(frozen=True, slots=True)
class BatchTry:
    """One size that was tried."""

    samples: int
    fits: bool
    peak: int | None = None
    """Peak memory of tensors on the device, in bytes; None on a CPU."""


@final
class LargestBatchSearch(Runner):
    """Finds the most samples that a step can have; its value is every try, in order."""

    def __init__(self, runner: Runner, *, limit: int) -> None:
        self._runner = runner
        self._limit = limit
        self.needs_optimizer = runner.needs_optimizer

    @override
    def prepare(self, run: EngineRun) -> None:
        self._runner.prepare(run)

    @override
    def run(self, run: EngineRun) -> list[BatchTry]:
        steps = run.feed.epoch(0)
        batch = next(steps)[0]
        del steps
        _require_rows(batch)
        snapshot = take_whole_snapshot(run)
        snapshot.add(partial(run.meter.restore_sums, run.meter.save_sums()))
        tries: list[BatchTry] = []

        def fits(samples: int) -> bool:
            tries.append(self._try(run, batch, samples))
            return tries[-1].fits

        try:
            search_largest(fits, self._limit)
        finally:
            snapshot.restore()
        return tries

    def _try(self, run: EngineRun, batch: Batch, samples: int) -> BatchTry:
        is_on_cuda = run.device.type == "cuda"
        if is_on_cuda:
            torch.cuda.reset_peak_memory_stats(run.device)
        fits = self._takes_steps(run, batch, samples)
        peak = torch.cuda.max_memory_allocated(run.device) if is_on_cuda else None
        run.model.zero_grad(set_to_none=True)
        empty = find_empty_cache(run.device)
        if empty is not None:
            empty()
        logger.info("%d samples %s", samples, "fit" if fits else "do not fit")
        return BatchTry(samples, fits, peak if fits else None)

    def _takes_steps(self, run: EngineRun, batch: Batch, samples: int) -> bool:
        """Whether steps with this many samples fit; the tensors of a failed step are freed."""
        try:
            for _ in range(STEPS_PER_TRY):
                self._runner.train_step(run, (resize_batch(batch, samples),))
            if run.device.type == "cuda":
                torch.cuda.synchronize(run.device)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            return False
        return True


def search_largest(fits: Callable[[int], bool], limit: int) -> int:
    """The largest number up to ``limit`` that fits, found by doubling and bisection; 0: none.

    >>> search_largest(lambda samples: samples <= 37, 100)
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
            f"train_loader: its batches cannot be resized: {error}\n"
            "  give tensors with one row for each sample"
        ) from error
