"""Finds out which steps had gradients that are not finite, and records what they were made of."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final
from weakref import ref

import torch

from epochal.engine.interfaces.every import Every
from epochal.engine.measure.meter import EMPTY_BATCH_LOSS

if TYPE_CHECKING:
    from torch import Tensor

    from epochal.engine.run import Run


logger = logging.getLogger(__name__)

DIVERGED = "diverged"
"""Why a run ends whose updates are left out for good."""

_SOON = Every(10, "st")  # each step until somebody looks is lost
_SELDOM = Every(50, "st")  # nothing is lost, but the bits would be
_FIRST = 0  # of all that is due at a boundary
_BITS = 62
_MOST_TOLD = 100
_MOST_INDICES = 1000
_MOST_SHOWN = 8


@final
@dataclass(frozen=True, slots=True)
class BadStep:
    """One step, and which batches of its epoch it took."""

    step: int
    epoch: int
    batches: range


@final
class NonfiniteWatch:
    """Looks at what a guard noted: every few steps, at the end of each epoch, and before a save.

    Args:
        run: Told what to do about it, by ``engine.on_nonfinite``.
        history: One bit for each of the latest steps, the last one lowest.
    """

    def __init__(self, run: Run, history: Tensor) -> None:
        self.has_diverged = False
        """Whether updates are left out for good, as far as that is known."""

        self._history = history
        self._seen_step = run.step
        self._num_told = 0
        every = _SELDOM if run.options.engine.on_nonfinite == "skip" else _SOON
        run.plan.add_period("watch gradients", every, self.look, priority=_FIRST)

    def look(self, run: Run) -> None:
        """Ask for what was noted since the last time; on a device the answer comes a step later."""
        stretch = self._recent_steps(run)
        if not run.meter.is_async:
            self._judge(run, stretch, int(self._history))
            return
        reading = _AsyncNumber(self._history)
        run.meter.request(dict, lambda _: self._judge(run, stretch, reading.read()))

    def check_now(self, run: Run) -> None:
        """Judge every step until now, which waits for the device."""
        run.meter.deliver()
        if run.step > self._seen_step:
            self._judge(run, self._recent_steps(run), int(self._history))

    def restart(self, run: Run) -> None:
        """Look at steps from here on: everything is as it was before any gradient was bad."""
        self.has_diverged = False
        self._seen_step = run.step

    def _recent_steps(self, run: Run) -> list[BadStep]:
        """The steps since the last time, the latest first; all of them are of this epoch."""
        count = min(run.step - self._seen_step, _BITS)
        self._seen_step = run.step
        steps = enumerate(run.feed.latest_steps(count))
        return [BadStep(run.step - back, run.epoch, batches) for back, batches in steps]

    def _judge(self, run: Run, stretch: list[BadStep], bits: int) -> None:
        bad = [place for back, place in enumerate(stretch) if bits >> back & 1]
        if not bad or self.has_diverged:
            return
        is_final = run.options.engine.on_nonfinite != "skip"
        for place in reversed(bad):
            # With the weights from before the first one, those after it say little.
            self._tell(run, place, is_shown=not is_final or place is bad[-1])
        if not is_final:
            return
        self.has_diverged = True
        if run.options.engine.on_nonfinite == "rollback":
            run.diverged_at = bad[-1]
            run.plan.wake()
        else:
            report_divergence(run, bad[-1].step)

    def _tell(self, run: Run, place: BadStep, *, is_shown: bool) -> None:
        self._num_told += 1
        if self._num_told > _MOST_TOLD:
            return
        samples = run.feed.samples_at(place.epoch, place.batches)
        facts, shown = _describe(place, samples)
        action = run.options.engine.on_nonfinite
        run.writer.event("nonfinite", step=place.step, action=action, **facts)
        if is_shown:
            logger.warning("step %d: its gradient is not finite; %s", place.step, shown)
        if self._num_told == _MOST_TOLD:
            logger.warning("that was the %dth such step; no more are listed", _MOST_TOLD)


def report_divergence(run: Run, step: int) -> None:
    """End a run whose updates are left out since a step."""
    logger.error(
        "the gradient of step %d is not finite: the run ends, with the weights from before "
        "that step; try a smaller optim.lr, or optim.clip=1.0",
        step,
    )
    stop_diverged(run)


def stop_diverged(run: Run) -> None:
    """Stop a run as diverged, unless a person ends it anyway."""
    if run.stop_status != "interrupted":
        run.stop_reason = ""  # steps that changed nothing were not the end of the training
        run.stop(DIVERGED)


def _describe(place: BadStep, samples: list[list[Any]] | None) -> tuple[dict[str, Any], str]:
    """What an event says of a step, and what a line of the log does."""
    batches = list(place.batches)
    facts: dict[str, Any] = {"epoch": place.epoch + 1, "batches": batches}
    named = "batch" if len(batches) == 1 else "batches"
    shown = f"epoch {place.epoch + 1}, {named} {_list(batches)}"
    if samples is None:
        return facts, shown
    facts["samples"], room = [], _MOST_INDICES
    for part in samples:
        facts["samples"].append(part[: max(room, 0)])
        room -= len(part)
    if room < 0:
        facts["samples_left_out"] = -room
    return facts, f"{shown}, samples {_list([index for part in samples for index in part])}"


def _list(values: list[Any]) -> str:
    text = ", ".join(map(str, values[:_MOST_SHOWN]))
    more = len(values) - _MOST_SHOWN
    return f"{text} and {more} more" if more > 0 else text


@final
class _AsyncNumber:
    """A number on a device as it is now, on its way to the host."""

    def __init__(self, number: Tensor) -> None:
        self._event: torch.cuda.Event | None = None
        if not number.is_cuda:
            self._copied = number.clone()
            return
        self._copied = torch.empty((), dtype=number.dtype, pin_memory=True)
        self._copied.copy_(number, non_blocking=True)
        self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch has no types here
        self._event.record(torch.cuda.current_stream(number.device))

    def read(self) -> int:
        """Waits if it has not arrived."""
        if self._event is not None:
            self._event.synchronize()
        return int(self._copied)


@final
class NonfiniteLossWarner:
    """Hears of means that are not finite, when somebody reads them anyway.

    Args:
        run: The run whose position the warning names.
    """

    def __init__(self, run: Run) -> None:
        self._run = ref(run)  # whose meter holds this
        self._warned: set[bool] = set()

    def __call__(self, name: str, mean: float) -> None:
        """Warn of the first loss among such means, and of the first one of an empty batch."""
        is_empty = name == EMPTY_BATCH_LOSS
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
