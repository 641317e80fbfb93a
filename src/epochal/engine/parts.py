"""What a run is built from: its parts, its options and its environment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch import nn
    from torch.optim import Optimizer

    from epochal.engine.interfaces.average import Average
    from epochal.engine.interfaces.monitor import Monitor
    from epochal.engine.interfaces.schedule import AnySchedule
    from epochal.engine.interfaces.stage import Stage
    from epochal.engine.loss.loss import Loss
    from epochal.engine.run.engine_run import MakeOptimizer
    from epochal.engine.step.updater import Updater


@final
@dataclass(frozen=True, kw_only=True)
class Parts:
    """The objects that a run works with."""

    task: object
    model: nn.Module
    optimizer: Optimizer | None = None
    """Needed only for training."""

    schedule: AnySchedule | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    """By the name under which their values appear: ``Metric`` objects, and what
    ``MetricAdapter`` accepts."""

    hooks: Iterable[object] = ()
    monitor: Monitor | None = None
    """By default the task's ``err``, if it has ``post_metric_to_err``."""

    updater: Updater | None = None
    average: Average | None = None
    """Averages the weights of the model."""

    loss: Loss | None = None
    """The loss that the config describes."""

    outputs: Sequence[object] = ()
    """Output stages, in order."""

    evaluation: Sequence[object] = ()
    """Evaluation stages, in order."""

    stages: tuple[Stage, ...] = ()
    """In order; without any, the run has one stage of length ``train.for``."""

    make_optimizer: MakeOptimizer | None = None
    """Builds the optimizer again, if a config describes it."""
