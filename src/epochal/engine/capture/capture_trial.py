"""Compares captured or compiled steps with eager steps, and undoes them."""

from __future__ import annotations

import linecache
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, final

from epochal.engine.capture.batch_layout import copy_batch
from epochal.engine.capture.cuda_graph import noting_host_reads
from epochal.engine.capture.fingerprint import (
    StepDependencies,
    find_fingerprint_change,
    find_position_read,
    find_user_line,
    recording_reads,
    take_fingerprint,
)
from epochal.engine.device.seeding import find_used_generator, generator_states
from epochal.engine.process.signals import is_interrupted_or_preempted
from epochal.engine.snapshot.run_objects import find_state_tensors
from epochal.engine.snapshot.snapshot import Snapshot
from epochal.engine.step.build_step import BatchFunctions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.engine.feed.feed import Microbatches
    from epochal.engine.run.engine_run import EngineRun
    from epochal.engine.step.build_step import TakeStep

# Allowed gaps to eager steps in the trial, relative to the change of the weights and to the
# loss. First for float32, then for shorter formats.
EXACT_FORMATS = ("fp32", "fp64")
WEIGHT_GAPS = (0.05, 0.5)
LOSS_GAPS = (1e-3, 2e-2)
_MAX_SPREAD_FACTOR = 4.0  # a gap may be this many times the spread of eager steps
_USER_OWNED = ("task", "store")  # user code may replace these tensors
_REPEATS = 3  # of eager steps and of replays, to measure their spread


class CaptureRefusedError(Exception):
    """Steps cannot be captured; the message says why."""


class Gap(NamedTuple):
    """The relative difference of weights and of losses after the same steps."""

    weights: float
    loss: float

    def times(self, factor: float) -> Gap:
        """A multiple of both."""
        return Gap(self.weights * factor, self.loss * factor)

    def least(self, other: Gap) -> Gap:
        """The smaller of each."""
        return Gap(min(self.weights, other.weights), min(self.loss, other.loss))

    def most(self, other: Gap) -> Gap:
        """The larger of each."""
        return Gap(max(self.weights, other.weights), max(self.loss, other.loss))

    def is_within(self, allowed: Gap) -> bool:
        """Whether neither is larger; NaN never is."""
        return self.weights <= allowed.weights and self.loss <= allowed.loss


# Always allowed if eager steps have a spread: sums in another order can flip the sign of tiny
# gradients, and Adam takes equally large steps for those.
LEAST_GAP = Gap(weights=1e-3, loss=1e-5)


@final
class CaptureTrial:
    """A few steps that do not count: first eager ones, then replays to compare with them.

    The run is between two steps, and all batches have the same layout. ``restore`` brings the run
    back to where the trial began.
    """

    def __init__(self, run: EngineRun, eager: TakeStep, batches: list[Microbatches]) -> None:
        self._run = run
        self._eager = eager
        self._batches = batches
        self._tensors = find_state_tensors(run)
        self._start = Snapshot(run, self._tensors)
        self._end: Snapshot | None = None
        self._has_host_reads = False
        self.dependencies = StepDependencies()
        """What the eager steps read of task and store."""

    def watch_eager(self) -> None:
        """Take the steps eagerly; refuse them if they read a value that a graph would freeze."""
        run = self._run
        fingerprint, generators = take_fingerprint(run), generator_states()
        with (
            uncounted_steps(run),
            recording_reads(run.task) as task_reads,
            recording_reads(run.store) as store_reads,
            recording_reads(run) as run_reads,
            noting_host_reads(run.device) as host_reads,
        ):
            self._take(self._eager)
        self._has_host_reads = bool(host_reads)
        self._end = self._snapshot()
        names = None if task_reads is None else {*task_reads}
        self.dependencies = StepDependencies(names, has_store=bool(store_reads))
        position = find_position_read(run_reads or {})
        if position:
            raise CaptureRefusedError(
                f"{position}, and a graph would keep the present value; use a tensor on the device"
            )
        change = find_fingerprint_change(fingerprint, take_fingerprint(run))
        if change:
            raise CaptureRefusedError(
                f"{change} changes in the step, and a graph would not change it"
            )
        library = find_used_generator(generators, generator_states())
        if library:
            raise CaptureRefusedError(f"the step draws random numbers on the host, from {library}")
        self._require_same_tensors()

    def compare(self, take_step: TakeStep, *, is_exact: bool) -> str:
        """Take the same steps with another function; describes how close the results are.

        They are refused if they differ by more than rounding explains; with ``is_exact`` bits must
        be equal if eager steps repeat their bits. Bits may differ if eager steps read a value on
        the host and the capture did not: such a value chooses between two ways to compute the same
        result, such as attention with and without a mask.
        """
        assert self._end is not None
        is_exact = is_exact and not self._has_host_reads
        reached = self._repeat(take_step)
        differing = self._end.first_difference(reached)
        if not differing:
            return "equal to eager steps bit for bit"
        gap = self._gap(reached)
        is_short = self._run.options.engine.precision not in EXACT_FORMATS
        allowed = Gap(WEIGHT_GAPS[is_short], LOSS_GAPS[is_short])
        spread = self._eager_spread()
        if spread is None and is_exact:
            raise CaptureRefusedError(
                f"its numbers differ from those of eager steps, first in {differing} "
                f"(gap of the weights {gap.weights:.1e})"
            )
        if spread is not None:
            if is_exact:
                allowed = allowed.least(spread.times(_MAX_SPREAD_FACTOR).most(LEAST_GAP))
            gap = self._closest(take_step, reached, allowed)
        if not gap.is_within(allowed):
            raise CaptureRefusedError(
                f"it differs from eager steps: by {gap.weights:.1e} of the change of the weights "
                f"({allowed.weights:.1e} allowed) and {gap.loss:.1e} of the loss "
                f"({allowed.loss:.1e})"
            )
        return f"within {gap.weights:.1e} of eager steps"

    def _closest(self, take_step: TakeStep, reached: Snapshot, allowed: Gap) -> Gap:
        """The smallest gap of a few replays, whose bits must vary as those of eager steps do.

        One replay that comes close is enough: the others differ by noise.
        """
        gap, is_noisy = self._gap(reached), self._has_host_reads
        for _ in range(_REPEATS):
            again = self._repeat(take_step)
            is_noisy |= bool(reached.first_difference(again))
            gap = min(gap, self._gap(again), key=lambda one: one.weights)
            if is_noisy and gap.is_within(allowed):
                break
        if not is_noisy:
            raise CaptureRefusedError(
                "eager steps differ from each other where replays do not: "
                "something on the host changes from step to step"
            )
        return gap

    def _eager_spread(self) -> Gap | None:
        """The largest gap between repeated eager steps; None if they repeat their bits."""
        assert self._end is not None
        spread = None
        for _ in range(_REPEATS):
            again = self._repeat(self._eager)
            if self._end.first_difference(again):
                spread = self._gap(again).most(spread or Gap(0.0, 0.0))
        return spread

    def _gap(self, reached: Snapshot) -> Gap:
        assert self._end is not None
        weights = self._end.gap(reached, self._start, "model.")
        return Gap(weights, self._end.gap(reached, self._start, "meter."))

    def restore(self) -> None:
        """Bring the run back to where the trial began."""
        self._start.restore()

    def _repeat(self, take_step: TakeStep) -> Snapshot:
        self.restore()
        with uncounted_steps(self._run):
            self._take(take_step)
        return self._snapshot()

    def _take(self, take_step: TakeStep) -> None:
        for batch in self._batches:
            take_step(copy_batch(batch))  # a task may change it in place

    def _snapshot(self) -> Snapshot:
        return Snapshot(self._run, self._tensors, has_objects=False)

    def _require_same_tensors(self) -> None:
        now = find_state_tensors(self._run)
        for name in {**self._tensors, **now}:
            if now.get(name) is not self._tensors.get(name) and not name.startswith(_USER_OWNED):
                raise CaptureRefusedError(
                    f"{name} is replaced in the step instead of changed in place"
                )


@contextmanager
def uncounted_steps(run: EngineRun) -> Iterator[None]:
    """Take steps that leave no averages, metrics or stop requests."""
    stop, report = (run.stop_reason, run.stop_status), run.part(BatchFunctions).report
    try:
        with run.finishing_batches_by(report), run.meter.capture_additions():
            yield
    finally:
        if not is_interrupted_or_preempted(run):
            run.stop_reason, run.stop_status = stop


def describe_user_line(error: BaseException) -> str:
    """The innermost line of user code in the traceback of an error."""
    for frame, number in reversed(list(traceback.walk_tb(error.__traceback__))):
        if find_user_line(frame):
            name = frame.f_code.co_filename
            return f"{name}:{number} (`{linecache.getline(name, number).strip()}`)"
    return "a part of the model or of torch itself"
