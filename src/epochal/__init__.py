"""Epochal trains PyTorch models from configuration.

Names are imported when they are first used, so that ``import epochal`` costs next to nothing
and works without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from epochal import data
    from epochal.cli.pages.notebook_table import runs
    from epochal.components import nn
    from epochal.config import Duration
    from epochal.engine import (
        Average,
        EvaluationStage,
        Every,
        Hook,
        Metric,
        ModuleTask,
        Monitor,
        OutputStage,
        Run,
        Runner,
        RunResult,
        Schedule,
        Task,
        Updater,
        Warmup,
        current_run,
        probe,
    )
    from epochal.engine.analysis.model_summary import analyze
    from epochal.engine.interfaces.task import ModuleTask as TaskFlow
    from epochal.engine.loss.metric_adapter import MetricAdapter
    from epochal.errors import ConfigError, EpochalError
    from epochal.experiment.build.builder import build
    from epochal.experiment.config.script_arguments import Args, parse_args
    from epochal.experiment.experiment import Experiment
    from epochal.experiment.recover import recover
    from epochal.experiment.run import load_model as load
    from epochal.experiment.run import predict, resume, run, test
    from epochal.experiment.tools.find_batch import find_batch
    from epochal.experiment.tools.find_lr import find_lr
    from epochal.records.compare import diff
    from epochal.records.find import read_run as read
    from epochal.registry import register

_HOMES = {
    "Args": "epochal.experiment.config.script_arguments",
    "Average": "epochal.engine",
    "ConfigError": "epochal.errors",
    "Duration": "epochal.config",
    "EpochalError": "epochal.errors",
    "EvaluationStage": "epochal.engine",
    "Every": "epochal.engine",
    "Experiment": "epochal.experiment.experiment",
    "Hook": "epochal.engine",
    "Metric": "epochal.engine",
    "MetricAdapter": "epochal.engine.loss.metric_adapter",
    "ModuleTask": "epochal.engine",
    "Monitor": "epochal.engine",
    "OutputStage": "epochal.engine",
    "Run": "epochal.engine",
    "RunResult": "epochal.engine",
    "Runner": "epochal.engine",
    "Schedule": "epochal.engine",
    "Task": "epochal.engine",
    "TaskFlow": "epochal.engine",
    "Updater": "epochal.engine",
    "Warmup": "epochal.engine",
    "analyze": "epochal.engine.analysis.model_summary",
    "build": "epochal.experiment.build.builder",
    "current_run": "epochal.engine",
    "data": "epochal.data",
    "diff": "epochal.records.compare",
    "find_batch": "epochal.experiment.tools.find_batch",
    "find_lr": "epochal.experiment.tools.find_lr",
    "load": "epochal.experiment.run",
    "nn": "epochal.components.nn",
    "parse_args": "epochal.experiment.config.script_arguments",
    "predict": "epochal.experiment.run",
    "probe": "epochal.engine",
    "read": "epochal.records.find",
    "recover": "epochal.experiment.recover",
    "register": "epochal.registry",
    "resume": "epochal.experiment.run",
    "run": "epochal.experiment.run",
    "runs": "epochal.cli.pages.notebook_table",
    "test": "epochal.experiment.run",
}

_SYNONYMS = {"TaskFlow": "ModuleTask", "load": "load_model", "read": "read_run"}

_NAMESPACES = {"data", "nn"}  # names of whole modules

__all__ = [
    "Args",
    "Average",
    "ConfigError",
    "Duration",
    "EpochalError",
    "EvaluationStage",
    "Every",
    "Experiment",
    "Hook",
    "Metric",
    "MetricAdapter",
    "ModuleTask",
    "Monitor",
    "OutputStage",
    "Run",
    "RunResult",
    "Runner",
    "Schedule",
    "Task",
    "TaskFlow",
    "Updater",
    "Warmup",
    "analyze",
    "build",
    "current_run",
    "data",
    "diff",
    "find_batch",
    "find_lr",
    "load",
    "nn",
    "parse_args",
    "predict",
    "probe",
    "read",
    "recover",
    "register",
    "resume",
    "run",
    "runs",
    "test",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'epochal' has no attribute {name!r}")
    from epochal.experiment.record.uncaught import show_uncaught_errors

    show_uncaught_errors()
    home = import_module(_HOMES[name])
    value = home if name in _NAMESPACES else getattr(home, _SYNONYMS.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
