"""What a run is made of, how it goes, and where it takes place."""

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
    """The objects a run is made of."""

    task: object
    model: nn.Module
    optimizer: Optimizer | None = None
    """Needed to train only."""

    schedule: AnySchedule | None = None
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    """By the name under which their values appear."""

    hooks: Iterable[object] = ()
    monitor: Monitor | None = None
    """By default the task's ``err``, if it has ``post_metric_to_err``."""

    updater: Updater | None = None
    average: Average | None = None
    """Keeps averaged weights beside the model's own."""

    loss: Loss | None = None
    """Computes the loss of tasks that leave it to a config."""

    stages: tuple[Stage, ...] = ()
    """In order; none is one that takes as long as ``train.for`` says."""

    make_optimizer: MakeOptimizer | None = None
    """Makes the optimizer anew, where a config describes it."""


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
    """Where an earlier process left a run, and another one goes on."""

    state: Mapping[str, Any]
    """The state of every part, by the part's name."""

    manifest: CheckpointManifest
    path: Path
    """The folder of the checkpoint."""

    is_strict: bool = True
    """Whether its parts must be those of the run; not where the config may have changed."""

    has_ended: bool = False
    """Whether the run had come to an end of its own, and is to go on all the same."""


def ignore_stall(words: str, step: int) -> None:
    """What becomes of words that nobody wants to hear."""


@final
@dataclass(frozen=True, kw_only=True)
class Environment:
    """Where and as what a run takes place."""

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
    """What every checkpoint says about its run: id, attempt, digests of config, code and data."""

    resume: ResumePoint | None = None
    """What the run goes on from; None if it starts at its beginning."""

    times: PhaseTimer | None = None
    """Where the time went before the run was built, if anybody counted."""

    on_stall: Callable[[str, int], None] = ignore_stall
    """Told at which step nothing has happened for too long; returns at once."""

    is_debug: bool = False
    """Whether to look for the cause of every trouble, whatever that costs."""
