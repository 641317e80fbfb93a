"""Stages: parts of a training with their own settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from torch.optim import Optimizer

    from epochal.config.condition import Condition
    from epochal.config.duration import Duration
    from epochal.engine.interfaces.schedule import AnySchedule
    from epochal.engine.interfaces.task import Loader

    OptimChange = Mapping[str, Any]  # keys of `optim` with their new values


@final
@dataclass(frozen=True, slots=True)
class Plateau:
    """The end of a stage when the monitored metric stops improving.

    Args:
        patience: Values in a row that are no better than the best one of the stage.
    """

    patience: int

    @override
    def __str__(self) -> str:
        return f"plateau of {self.patience}"


@final
@dataclass(frozen=True, kw_only=True)
class Stage:
    """One part of a training; what it changes holds until a later stage changes it again."""

    name: str = "main"
    length: Duration | None = None
    """How long it is, or how long at most if a metric may end it."""

    until: Condition | Plateau | None = None
    """A metric that ends it earlier."""

    optim: OptimChange = field(default_factory=dict)
    """Keys of the section ``optim``; ``state`` says whether the optimizer keeps its state."""

    schedule: Callable[[Optimizer], AnySchedule] | None = None
    """Builds a schedule that counts from the start of the stage; None uses that of the run."""

    loss: Mapping[str, float] = field(default_factory=dict)
    """Weights of terms of the loss."""

    freeze: tuple[str, ...] = ()
    unfreeze: tuple[str, ...] = ()
    data: Mapping[str, Callable[[], Loader | Mapping[str, Loader]]] = field(default_factory=dict)
    """Builds the loaders of a split when the stage starts."""

    batch_size: int | None = None
    """Of the training loader."""

    task: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the task's ``on_stage_start``."""

    key: str = "stages.0"
    """Its key in the config, for messages."""

    @property
    def has_new_batches(self) -> bool:
        """Whether it reads other training batches, so that it starts a new epoch."""
        return "train" in self.data or self.batch_size is not None


def merge_task_params(stages: Iterable[Stage]) -> dict[str, Any]:
    """The arguments of the task in the last one of some stages."""
    return {name: value for stage in stages for name, value in stage.task.items()}
