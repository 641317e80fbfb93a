"""What surrounds a run: config, device, folders and writer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from epochal.records.folder.writer import NullWriter, Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import torch

    from epochal.engine.interfaces.run import ResumePoint
    from epochal.engine.measure.clock import PhaseTimer


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
