"""The engine: a run's parts, the loop over them, and the interfaces that users implement."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from epochal.engine.average import Average
    from epochal.engine.current import current_run
    from epochal.engine.every import Every
    from epochal.engine.hook import Hook
    from epochal.engine.metric import Metric
    from epochal.engine.monitor import Monitor
    from epochal.engine.optimizers import Member, MemberOptions, Optimizers
    from epochal.engine.parts import Options, Parts, Setting
    from epochal.engine.result import RunResult
    from epochal.engine.run import Run
    from epochal.engine.runner import Predict, Runner, Test, Train
    from epochal.engine.schedule import Schedule, TorchSchedule, Warmup
    from epochal.engine.task import ModuleTask, Task
    from epochal.engine.update import Updater

_HOMES = {
    "Average": "average",
    "Every": "every",
    "Hook": "hook",
    "Member": "optimizers",
    "MemberOptions": "optimizers",
    "Metric": "metric",
    "ModuleTask": "task",
    "Monitor": "monitor",
    "Optimizers": "optimizers",
    "Options": "parts",
    "Parts": "parts",
    "Predict": "runner",
    "Run": "run",
    "RunResult": "result",
    "Runner": "runner",
    "Schedule": "schedule",
    "Setting": "parts",
    "Task": "task",
    "Test": "runner",
    "TorchSchedule": "schedule",
    "Train": "runner",
    "Updater": "update",
    "Warmup": "schedule",
    "current_run": "current",
}

__all__ = [
    "Average",
    "Every",
    "Hook",
    "Member",
    "MemberOptions",
    "Metric",
    "ModuleTask",
    "Monitor",
    "Optimizers",
    "Options",
    "Parts",
    "Predict",
    "Run",
    "RunResult",
    "Runner",
    "Schedule",
    "Setting",
    "Task",
    "Test",
    "TorchSchedule",
    "Train",
    "Updater",
    "Warmup",
    "current_run",
]


def __getattr__(name: str) -> object:
    # Names arrive when first used: `options` and `hook` must be importable without torch.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return resolve_name(f"{__name__}.{_HOMES[name]}:{name}")
