"""Early stopping: ends the run when the monitored metric stops improving."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Annotated, Any, final

from typing_extensions import override

from epochal.config.bounds import AtLeast
from epochal.config.duration import Duration, parse_duration
from epochal.engine.interfaces.hook import Hook
from epochal.engine.interfaces.monitor import Monitor
from epochal.engine.run.engine_run import engine_run
from epochal.engine.run.plan import run_position
from epochal.errors import ConfigError, Problem, TaskError
from epochal.text.formatting import format_count

if TYPE_CHECKING:
    from epochal.engine.interfaces.run import Run

logger = logging.getLogger(__name__)


@final
class EarlyStopping(Hook):
    """Stops after ``patience`` values of the run's monitor in a row without improvement.

    NaN is never an improvement.

    Args:
        patience: Evaluations without improvement after which the run stops.
        min_delta: How much better a value must be to count; 0 uses that of the monitor.
        lower_bound: Stop at once when the value is at most this.
        upper_bound: Stop at once when the value is at least this.
        min_for: Train at least this long, such as ``5ep``.
    """

    priority = 250
    runners = ("train",)

    def __init__(
        self,
        *,
        patience: Annotated[int, AtLeast(1)],
        min_delta: Annotated[float, AtLeast(0)] = 0.0,
        lower_bound: float | None = None,
        upper_bound: float | None = None,
        min_for: Duration | None = None,
    ) -> None:
        for key, value, least in (("patience", patience, 1), ("min_delta", min_delta, 0)):
            if not value >= least:
                what = f"must be at least {least}, got {value!r}"
                raise ConfigError(Problem(f"EarlyStopping.{key}", what, hint=f"`{key}: {least}`"))
        self._patience = patience
        self._min_delta = min_delta
        self._lower_bound = -math.inf if lower_bound is None else lower_bound
        self._upper_bound = math.inf if upper_bound is None else upper_bound
        self._min_for = None if min_for is None else parse_duration(min_for)
        self._own: Monitor | None = None

    @override
    def run_start(self, run: Run) -> None:
        # Not at setup: a task with post_metric_to_err brings its own monitor after that.
        monitor = run.monitor
        if monitor is None:
            raise TaskError(
                "EarlyStopping: the run has no monitor, so there is no value to compare\n"
                "  write for example `monitor: -val/loss`, or `+val/acc` if larger is better"
            )
        self._own = None  # one object can serve several runs
        if self._min_delta:  # this hook needs a larger improvement than the run
            self._own = Monitor(monitor.metric, monitor.mode, min_delta=self._min_delta)

    @override
    def epoch_end(self, run: Run, split: str, metrics: dict[str, float]) -> None:
        if split == "train":  # evaluations come with eval_end
            self._check(run, metrics)

    @override
    def eval_end(self, run: Run, split: str, metrics: dict[str, float]) -> None:
        self._check(run, metrics)

    def _check(self, run: Run, metrics: dict[str, float]) -> None:
        # Hooks can evaluate before the run starts, when there may be no monitor yet.
        value = None if run.monitor is None else metrics.get(run.monitor.metric)
        if run.monitor is None or value is None:
            return
        if self._own is not None:
            self._own.update(value)
        reason = (
            "" if self._is_too_early(run) else self._find_reason(self._own or run.monitor, value)
        )
        if reason:
            logger.info("stopping early: %s %s", run.monitor.metric, reason)
            run.stop("early_stop")

    def _is_too_early(self, run: Run) -> bool:
        least = self._min_for
        if least is None:
            return False
        # The epoch that is ending has not been counted yet.
        is_over = least.unit == "ep" and run.is_in_epoch and engine_run(run).feed.is_complete
        return run_position(run, least.unit) + is_over < least.amount

    def _find_reason(self, monitor: Monitor, value: float) -> str:
        """Why to stop; empty to continue."""
        if value <= self._lower_bound:
            return f"reached {value:.4g}, at most the lower bound {self._lower_bound:.4g}"
        if value >= self._upper_bound:
            return f"reached {value:.4g}, at least the upper bound {self._upper_bound:.4g}"
        if monitor.misses < self._patience:
            return ""
        evaluations = format_count(monitor.misses, "evaluation")
        if monitor.best is None:
            return f"had no valid value in {evaluations}"
        return f"was not better than {monitor.best:.4g} in {evaluations}"

    def state_dict(self) -> dict[str, Any]:
        """The state of this hook's monitor, if ``min_delta`` needs one."""
        return {"own": None if self._own is None else self._own.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue counting from a checkpoint."""
        own = state["own"]
        if self._own is not None and own is not None:
            self._own.load_state_dict(own)
