"""Early stopping: end the run when the monitored metric stops getting better."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, final

from typing_extensions import override

from epochal.engine.hook import Hook
from epochal.errors import ConfigError, Problem, TaskError

if TYPE_CHECKING:
    from epochal.engine.monitor import Monitor
    from epochal.engine.run import Run

logger = logging.getLogger(__name__)


@final
class EarlyStopping(Hook):
    """Stop after ``patience`` evaluations in a row without a better monitored value.

    It watches the run's one monitor. A value that is NaN is never better.

    Args:
        patience: Evaluations without improvement after which the run stops.
        min_delta: How much better a value must be to count; 0 takes the monitor's own.
        lower_bound: Stop at once when the value is at most this.
        upper_bound: Stop at once when the value is at least this.
    """

    priority = 250

    def __init__(
        self,
        *,
        patience: int,
        min_delta: float = 0.0,
        lower_bound: float | None = None,
        upper_bound: float | None = None,
    ) -> None:
        for key, value, least in (("patience", patience, 1), ("min_delta", min_delta, 0)):
            if not value >= least:
                what = f"must be at least {least}, got {value!r}"
                raise ConfigError(Problem(f"EarlyStopping.{key}", what, hint=f"`{key}: {least}`"))
        self._patience = patience
        self._min_delta = min_delta
        self._lower_bound = -math.inf if lower_bound is None else lower_bound
        self._upper_bound = math.inf if upper_bound is None else upper_bound
        self._best: float | None = None
        self._misses = 0

    @override
    def run_start(self, run: Run) -> None:
        self._best, self._misses = None, 0  # one object may serve several runs
        # Not at setup: a task with post_metric_to_err brings its own monitor after that.
        if run.monitor is None:
            raise TaskError(
                "EarlyStopping: the run has no monitor, so nothing says what better means\n"
                "  write for example `monitor: -val/loss`, or `+val/acc` if larger is better"
            )

    @override
    def epoch_end(self, run: Run, split: str, metrics: dict[str, float]) -> None:
        if split == "train":  # evaluations are heard of at their end
            self._watch(run, metrics)

    @override
    def eval_end(self, run: Run, split: str, metrics: dict[str, float]) -> None:
        self._watch(run, metrics)

    def _watch(self, run: Run, metrics: dict[str, float]) -> None:
        # A hook may evaluate before the run starts, when there may be no monitor yet.
        value = None if run.monitor is None else metrics.get(run.monitor.metric)
        if run.monitor is None or value is None:
            return
        reason = self._judge(run.monitor, value)
        if reason:
            logger.info("stopping early: %s %s", run.monitor.metric, reason)
            run.stop("early_stop")

    def _judge(self, monitor: Monitor, value: float) -> str:
        """Why to stop, or nothing."""
        if value <= self._lower_bound:
            return f"reached {value:.4g}, at most the lower bound {self._lower_bound:.4g}"
        if value >= self._upper_bound:
            return f"reached {value:.4g}, at least the upper bound {self._upper_bound:.4g}"
        if self._is_better(monitor, value):
            self._best = value
            self._misses = 0
            return ""
        self._misses += 1
        if self._misses < self._patience:
            return ""
        best = "no number" if self._best is None else f"{self._best:.4g}"
        times = "evaluation" if self._misses == 1 else "evaluations"
        return f"was not better than {best} in {self._misses} {times}"

    def _is_better(self, monitor: Monitor, value: float) -> bool:
        if math.isnan(value) or self._best is None:
            return not math.isnan(value)
        gain = value - self._best if monitor.mode == "max" else self._best - value
        return gain > (self._min_delta or monitor.min_delta)

    def state_dict(self) -> dict[str, float | None]:
        """What a checkpoint keeps."""
        return {"best": self._best, "misses": self._misses}

    def load_state_dict(self, state: dict[str, float | None]) -> None:
        """Go on counting from a checkpoint."""
        self._best = state["best"]
        self._misses = int(state["misses"] or 0)
