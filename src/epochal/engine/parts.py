"""What a run is built from: its parts, its options and its environment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from epochal.engine.interfaces.options import (
    CheckpointOptions,
    EngineOptions,
    LogOptions,
    OptimOptions,
    TrainOptions,
)
from epochal.records.folder.writer import NullWriter, Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    import torch
    from torch import nn
    from torch.optim import Optimizer

    from epochal.engine.interfaces.metric import Metric
    from epochal.engine.interfaces.monitor import Monitor
    from epochal.engine.interfaces.schedule import AnySchedule
    from epochal.engine.measure.phase_timer import PhaseTimer
    from epochal.engine.optim.average import Average
    from epochal.engine.stages.change_optimizer import MakeOptimizer
    from epochal.engine.stages.stage import Stage
    from epochal.engine.step.loss import Loss
    from epochal.engine.step.updater import Updater
    from epochal.records.folder.checkpoint_manifests import CheckpointManifest


@final
@dataclass(frozen=True, kw_only=True)
class Parts:
    """The objects that a run works with."""

    task: object
    model: nn.Module
    optimizer: Optimizer | None = None
    """Needed only for training."""

    schedule: AnySchedule | None = None
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    """By the name under which their values appear."""

    hooks: Iterable[object] = ()
    monitor: Monitor | None = None
    """By default the task's ``err``, if it has ``post_metric_to_err``."""

    updater: Updater | None = None
    average: Average | None = None
    """Averages the weights of the model."""

    loss: Loss | None = None
    """The loss that the config describes."""

    stages: tuple[Stage, ...] = ()
    """In order; without any, the run has one stage of length ``train.for``."""

    make_optimizer: MakeOptimizer | None = None
    """Builds the optimizer again, if a config describes it."""


@final
@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of all sections that the engine reads."""

    train: TrainOptions = field(default_factory=TrainOptions)
    engine: EngineOptions = field(default_factory=EngineOptions)
    optim: OptimOptions = field(default_factory=OptimOptions)
    log: LogOptions = field(default_factory=LogOptions)
    checkpoint: CheckpointOptions = field(default_factory=CheckpointOptions)


@final
@dataclass(frozen=True, kw_only=True)
class ResumePoint:
    """The checkpoint from which a run resumes."""

    state: Mapping[str, Any]
    """The state of every part, by the part's name."""

    manifest: CheckpointManifest
    path: Path
    """The folder of the checkpoint."""

    is_strict: bool = True
    """Whether its parts must match those of the run; False if the config may have changed."""

    has_ended: bool = False
    """Whether the run had ended and is continued anyway."""


def ignore_stall(message: str, step: int) -> None:
    """Do nothing when the run hangs."""


@final
@dataclass(frozen=True, kw_only=True)
class Environment:
    """Config, device, folders and writer of a run."""

    config: Mapping[str, Any] = field(default_factory=dict)
    """The expanded config as plain values."""

    tag: str = ""
    seed: int = 0
    device: str | torch.device = "cpu"
    dtype: str | torch.dtype | None = None
    """``float32`` or ``float64`` for the model and the floats of batches; None changes none."""

    writer: Writer = field(default_factory=NullWriter)
    dir: Path | None = None
    checkpoint_dir: Path | None = None
    registry: Any = None
    """Finds components by name; None for a run that no config describes."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    """Facts in every checkpoint: id, attempt, digests of config, code and data."""

    resume: ResumePoint | None = None
    """The checkpoint to resume from; None for a new run."""

    times: PhaseTimer | None = None
    """The time spent before the run was built, if it was measured."""

    on_stall: Callable[[str, int], None] = ignore_stall
    """Called with a message and the step when the run hangs; must return at once."""

    is_debug: bool = False
    """Whether to look for the cause of errors, even if that makes steps slow."""
