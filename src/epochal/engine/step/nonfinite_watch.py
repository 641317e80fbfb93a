"""Finds the steps whose gradients were not finite, and reports their batches and samples."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, final

from epochal.engine.interfaces.every import Every
from epochal.engine.measure.sums import AsyncCopy
from epochal.engine.run.engine_run import BadStep
from epochal.errors import DIVERGED

if TYPE_CHECKING:
    from torch import Tensor

    from epochal.engine.run.engine_run import EngineRun

logger = logging.getLogger(__name__)

_CHECK_PERIOD = Every(10, "st")  # the steps between a bad one and the check are lost
_SKIP_CHECK_PERIOD = Every(50, "st")  # with "skip" no step is lost; must be below _HISTORY_BITS
_FIRST_PRIORITY = 0  # before everything else that is due
_HISTORY_BITS = 62
_MAX_REPORTED = 100
_MAX_INDICES = 1000
_MAX_SHOWN = 8


@final
class NonfiniteWatch:
    """Reads the history of a guard every few steps, at the end of each epoch, and before a save.

    It has one bit for each of the latest steps, the last one lowest.
    """

    def __init__(self, run: EngineRun, history: Tensor) -> None:
        self.has_diverged = False
        """Whether all further updates are known to be skipped."""

        self._history = history
        self._seen_step = run.step
        self._num_reported = 0
        every = _SKIP_CHECK_PERIOD if run.options.engine.on_nonfinite == "skip" else _CHECK_PERIOD
        run.plan.add_period("watch gradients", every, self.request_check, priority=_FIRST_PRIORITY)

    def request_check(self, run: EngineRun) -> None:
        """Check the steps since the last check; on a device the answer comes one step later."""
        steps = self._recent_steps(run)
        if not run.meter.is_async:
            self._handle_bad_steps(run, steps, int(self._history))
            return
        history = AsyncCopy(self._history, [])
        run.meter.request(
            dict, lambda _: self._handle_bad_steps(run, steps, int(history.read()[0]))
        )

    def check_now(self, run: EngineRun) -> None:
        """Check all steps until now; waits for the device."""
        run.meter.deliver()
        if run.step > self._seen_step:
            self._handle_bad_steps(run, self._recent_steps(run), int(self._history))

    def restart(self, run: EngineRun) -> None:
        """Watch from the current step on, after a rollback."""
        self.has_diverged = False
        self._seen_step = run.step

    def _recent_steps(self, run: EngineRun) -> list[BadStep]:
        """The steps since the last check, the latest first; all are in this epoch."""
        count = min(run.step - self._seen_step, _HISTORY_BITS)
        self._seen_step = run.step
        steps = enumerate(run.feed.latest_steps(count))
        return [BadStep(run.step - back, run.epoch, batches) for back, batches in steps]

    def _handle_bad_steps(self, run: EngineRun, steps: list[BadStep], bits: int) -> None:
        bad = [place for back, place in enumerate(steps) if bits >> back & 1]
        if not bad or self.has_diverged:
            return
        is_skipping = run.options.engine.on_nonfinite == "skip"
        for place in reversed(bad):
            # Steps after the first bad one did not change the weights: show only the first.
            self._report(run, place, is_shown=is_skipping or place is bad[-1])
        if is_skipping:
            return
        self.has_diverged = True
        if run.options.engine.on_nonfinite == "rollback":
            run.diverged_at = bad[-1]
            run.plan.wake()
        else:
            what = f"the gradient of step {bad[-1].step} is not finite"
            stop_diverged(run, f"{what}; the weights before that step are kept")

    def _report(self, run: EngineRun, place: BadStep, *, is_shown: bool) -> None:
        self._num_reported += 1
        if self._num_reported > _MAX_REPORTED:
            return
        samples = run.feed.samples_at(place.epoch, place.batches)
        facts, shown = _describe(place, samples)
        action = run.options.engine.on_nonfinite
        run.writer.event("nonfinite", step=place.step, action=action, **facts)
        if is_shown:
            logger.warning("step %d: its gradient is not finite; %s", place.step, shown)
        if self._num_reported == _MAX_REPORTED:
            logger.warning(
                "step %d is the %dth such step; no more are reported", place.step, _MAX_REPORTED
            )


def stop_diverged(run: EngineRun, what: str) -> None:
    """Log why a run diverged, and stop it, unless it was interrupted."""
    message = f"{what}\n  {suggest_after_divergence(run)}"
    logger.error("diverged: %s", message)
    if run.stop_status != "interrupted":
        run.message = message
        run.stop_reason = ""  # a limit does not count if its last steps changed nothing
        run.stop(DIVERGED, status=DIVERGED)


def suggest_after_divergence(run: EngineRun) -> str:
    """What to try if losses or gradients are not finite."""
    advice = "try a smaller optim.lr, or optim.clip=1.0"
    return advice if run.is_debug else f"{advice}; --debug finds its origin"


def _describe(place: BadStep, samples: list[list[Any]] | None) -> tuple[dict[str, Any], str]:
    """The data of the event of a bad step, and the text for the log."""
    batches = list(place.batches)
    facts: dict[str, Any] = {"epoch": place.epoch + 1, "batches": batches}
    named = "batch" if len(batches) == 1 else "batches"
    shown = f"epoch {place.epoch + 1}, {named} {_list(batches)}"
    if samples is None:
        return facts, shown
    facts["samples"], room = [], _MAX_INDICES
    for part in samples:
        facts["samples"].append(part[: max(room, 0)])
        room -= len(part)
    if room < 0:
        facts["samples_left_out"] = -room
    return facts, f"{shown}, samples {_list([index for part in samples for index in part])}"


def _list(values: list[Any]) -> str:
    text = ", ".join(map(str, values[:_MAX_SHOWN]))
    more = len(values) - _MAX_SHOWN
    return f"{text} and {more} more" if more > 0 else text
