"""The result of a run: its status, the reason for its end, and its metrics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

from epochal.errors import CheckpointError
from epochal.records.metrics.points import (
    EPOCH_MEAN_PREFIX,
    INTERVAL_MEAN_PREFIX,
    TRAIN_PREFIX,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import nn


def select_result_metrics(latest: Mapping[str, float]) -> dict[str, float]:
    """The latest values of metrics; training metrics only as the mean over the longest time.

    That is an evaluation interval in a run that does not last epochs, otherwise an epoch.
    """
    prefixes = (INTERVAL_MEAN_PREFIX, EPOCH_MEAN_PREFIX, TRAIN_PREFIX)
    repeated: set[str] = set()
    for index, prefix in enumerate(prefixes):
        found = [name.removeprefix(prefix) for name in latest if name.startswith(prefix)]
        repeated |= {f"{other}{name}" for name in found for other in prefixes[index + 1 :]}
    return {name: value for name, value in latest.items() if name not in repeated}


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class RunResult:
    """The result of one run; holds no model, no tensors and no exception object."""

    status: str
    """``finished``, ``stopped`` (by a hook or a limit), ``failed``, ``diverged`` (losses, gradients
    or weights are not finite), ``interrupted`` (Ctrl-C) or ``preempted`` (SIGTERM, SIGUSR1 or
    SIGHUP; it can be resumed)."""

    reason: str
    """``max_epochs``, ``max_steps``, ``max_samples``, ``max_time``, ``target`` (``train.until``),
    ``early_stop``, ``diverged``, ``preempted``, ``user_interrupt``, ``exception``, ``oom`` (out
    of memory), ``disk_full``, ``completed`` (test and predict), or the reason that a hook gave."""

    exception_type: str | None = None
    message: str = ""
    """Of the exception, or why the run diverged."""

    traceback: str = ""
    """The full text, with the names of the hooks involved."""

    rank: int | None = None
    """The process that failed first, if the run had several."""

    exit_code: int = 0
    """The exit code of the command line."""

    dir: Path | None = None
    """The folder of the run's record, if it has one."""

    config: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The latest value of every metric, such as ``val/acc``; of training, the mean over the last
    epoch, as ``train/epoch/loss``, or in a run whose length is not in epochs, over the last
    evaluation interval, as ``train/interval/loss``."""

    spread: Mapping[str, float] = field(default_factory=dict)
    """After a cross validation, in which metrics are means over the folds: their standard
    deviations, and that of ``best``."""

    best: float | None = None
    """The best value of the monitored metric."""

    weights: str = ""
    """After ``test`` and ``predict`` of a run, the weights used: ``best (step 800, ...)``."""

    steps: int = 0
    epochs: int = 0
    """Completed epochs."""

    samples: int = 0
    seconds: float = 0.0
    """Duration of the run in all its attempts, start-up included."""

    speed: Mapping[str, float] = field(default_factory=dict)
    """``steps`` and ``samples`` per second of training, and what the task's ``count_unit`` names;
    evaluations and saving do not count."""

    times: Mapping[str, float] = field(default_factory=dict)
    """Seconds of each part, such as ``steps`` or ``hooks/Console``."""

    redone_seconds: float = 0.0
    """Seconds spent on steps that were repeated after a resume or discarded by a rollback."""

    killed: int = 0
    """How many of its processes were killed; the time since their last report is unknown."""

    device_time: Mapping[str, float] = field(default_factory=dict)
    """Sampled steps on a GPU: their number, how often the GPU was the bottleneck, mean seconds."""

    value: Any = None  # a runner may return any object
    """What the runner returned; after ``predict`` the outputs."""

    @property
    def ok(self) -> bool:
        """Whether the run finished or was stopped, without an error or interruption."""
        return self.status in ("finished", "stopped")

    def load_best(self, model: nn.Module) -> nn.Module:
        """Load the best weights of the run into ``model``, and return it.

        After ``fit()`` the model itself holds the final weights.

        Raises:
            CheckpointError: The run kept no best weights, or they do not fit the model.
        """
        from epochal.checkpoint.run_weights import BEST, choose_run_weights
        from epochal.records.folder.reader import read_folder

        if self.dir is None:
            raise CheckpointError(
                "load_best: this run has no record, and so no best weights\n"
                "  leave out no_file; the model holds the final weights"
            )
        choose_run_weights(read_folder(self.dir), BEST).load_into(model)
        return model

    @override
    def __repr__(self) -> str:
        from epochal.engine.result_page import describe_result

        return describe_result(self)

    def _repr_html_(self) -> str:
        """What a notebook shows: a table, and curves if the run has a record."""
        from epochal.engine.result_page import result_to_html

        return result_to_html(self)
