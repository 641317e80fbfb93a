"""The engine: a run's parts, the loop over them, and the interfaces that users implement."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from epochal.engine.interfaces.average import Average
    from epochal.engine.interfaces.every import Every
    from epochal.engine.interfaces.hook import Hook
    from epochal.engine.interfaces.metric import Metric
    from epochal.engine.interfaces.monitor import Monitor
    from epochal.engine.interfaces.options import Options
    from epochal.engine.interfaces.output_stage import EvaluationStage, OutputStage
    from epochal.engine.interfaces.run import Run
    from epochal.engine.interfaces.schedule import Schedule, TorchSchedule, Warmup
    from epochal.engine.interfaces.task import ModuleTask, Task
    from epochal.engine.optim.multi_optimizer import Member, MemberOptions, Optimizers
    from epochal.engine.parts import Parts
    from epochal.engine.result import RunResult
    from epochal.engine.run.engine_run import Environment
    from epochal.engine.run_context import current_run, probe
    from epochal.engine.runner import Predict, Runner, Test, Train
    from epochal.engine.step.updater import Updater

_HOMES = {
    "Average": "interfaces.average",
    "EvaluationStage": "interfaces.output_stage",
    "Every": "interfaces.every",
    "Hook": "interfaces.hook",
    "Member": "optim.multi_optimizer",
    "MemberOptions": "optim.multi_optimizer",
    "Metric": "interfaces.metric",
    "ModuleTask": "interfaces.task",
    "Monitor": "interfaces.monitor",
    "Optimizers": "optim.multi_optimizer",
    "Options": "interfaces.options",
    "OutputStage": "interfaces.output_stage",
    "Parts": "parts",
    "Predict": "runner",
    "Run": "interfaces.run",
    "RunResult": "result",
    "Runner": "runner",
    "Schedule": "interfaces.schedule",
    "Environment": "run.engine_run",
    "Task": "interfaces.task",
    "Test": "runner",
    "TorchSchedule": "interfaces.schedule",
    "Train": "runner",
    "Updater": "step.updater",
    "Warmup": "interfaces.schedule",
    "current_run": "run_context",
    "probe": "run_context",
}

__all__ = [
    "Average",
    "Environment",
    "EvaluationStage",
    "Every",
    "Hook",
    "Member",
    "MemberOptions",
    "Metric",
    "ModuleTask",
    "Monitor",
    "Optimizers",
    "Options",
    "OutputStage",
    "Parts",
    "Predict",
    "Run",
    "RunResult",
    "Runner",
    "Schedule",
    "Task",
    "Test",
    "TorchSchedule",
    "Train",
    "Updater",
    "Warmup",
    "current_run",
    "probe",
]


def __getattr__(name: str) -> object:
    # Names arrive when first used: `options` and `hook` must be importable without torch.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return resolve_name(f"{__name__}.{_HOMES[name]}:{name}")
