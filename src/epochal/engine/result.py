"""What a run comes to: how it ended, why, and the numbers it reached."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@final
@dataclass(frozen=True, kw_only=True)
class RunResult:
    """The outcome of one run; holds no model, no tensor of it and no exception object."""

    status: str
    """``finished``, ``stopped`` (by a hook or a limit), ``failed``, ``interrupted`` (Ctrl-C) or
    ``preempted`` (SIGTERM or SIGUSR1; it can be resumed)."""

    reason: str
    """``max_epochs``, ``max_steps``, ``max_samples``, ``max_time``, ``target`` (``train.until``),
    ``early_stop``, ``preempted``, ``user_interrupt``, ``exception``, ``oom`` (out of memory),
    ``disk_full``, ``completed`` (test and predict), or what a hook said."""

    exception_type: str | None = None
    message: str = ""
    traceback: str = ""
    """The full text, with the names of hooks that were involved."""

    exit_code: int = 0
    """What the command line should exit with."""

    dir: Path | None = None
    """The folder of the run's record, if it has one."""

    config: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The latest value of every metric, such as ``val/acc``."""

    spread: Mapping[str, float] = field(default_factory=dict)
    """After a cross validation, whose metrics are means over its folds: their standard deviation,
    and that of ``best``."""

    best: float | None = None
    """The best value of the monitored metric."""

    steps: int = 0
    epochs: int = 0
    """Epochs that were completed."""

    samples: int = 0
    seconds: float = 0.0
    """How long it worked, from its start-up on, in all its attempts."""

    times: Mapping[str, float] = field(default_factory=dict)
    """Where they went: seconds of each part, such as ``steps`` or ``hooks/Console``."""

    redone_seconds: float = 0.0
    """How many of them went into steps that do not count: they were done again, or given up when
    the run went back."""

    killed: int = 0
    """How many of its processes were killed, and could not tell of their last seconds."""

    device_time: Mapping[str, float] = field(default_factory=dict)
    """Of steps looked at on a GPU: how many, in which share it was behind, their mean seconds."""

    value: Any = None  # whatever the runner returned
    """What the runner returned: the outputs, after ``predict``."""

    @property
    def ok(self) -> bool:
        """Whether the run came to an end of its own."""
        return self.status in ("finished", "stopped")
