"""Every built-in hook passes the conformance suite for users' hooks."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from epochal.data.loader import LoaderOptions
from epochal.engine.interfaces.options import (
    EngineOptions,
    HookOptions,
    LogOptions,
    OptimOptions,
    TrainOptions,
)
from epochal.hooks.banner import Banner
from epochal.hooks.console import Console
from epochal.hooks.early_stopping import EarlyStopping
from epochal.hooks.mixing import CutMix, Mixup
from epochal.hooks.mlflow import MLflow
from epochal.hooks.points_file import CsvLog, JsonLines
from epochal.hooks.profiler import Profiler
from epochal.hooks.recording import Recording
from epochal.hooks.safetensors_export import FinalWeights
from epochal.hooks.tensorboard import TensorBoard
from epochal.hooks.time_report import TimeReport
from epochal.hooks.wandb import WandB
from epochal.testing import EventRecorder, HookConformance, TinyModel, TinyTask, tiny_run

if TYPE_CHECKING:
    from epochal.engine import Run


class TestBanner(HookConformance):
    def make(self) -> Banner:
        return Banner(machine={"name": "A100", "driver": "550.54"}, num_defaults=3, source="a.yaml")


class TestConsole(HookConformance):
    def make(self) -> Console:
        return Console(every="2st", grad_norm=True)


class TestCsvLog(HookConformance):
    def make(self) -> CsvLog:
        return CsvLog(every="2st")


class Squares(TinyTask):
    """A task whose inputs are images of two by two."""

    def pre_batch_forward(self, batch: Any) -> Any:
        return {**batch, "x": batch["x"].reshape(-1, 1, 2, 2)}


class Flat(nn.Sequential):
    """A model that flattens images."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        super().__init__(nn.Flatten(), TinyModel())


class TestCutMix(HookConformance):
    acts_on_training = True

    def make(self) -> CutMix:
        return CutMix(classes=3)

    def make_run(self, *hooks: object) -> Run:
        return tiny_run(*hooks, task=Squares(), model=Flat())


class TestEventRecorder(HookConformance):
    def make(self) -> EventRecorder:
        return EventRecorder()


class TestEarlyStopping(HookConformance):
    def make(self) -> EarlyStopping:
        return EarlyStopping(patience=5)


class TestFinalWeights(HookConformance):
    def make(self) -> FinalWeights:
        return FinalWeights()


class TestJsonLines(HookConformance):
    def make(self) -> JsonLines:
        return JsonLines(every="2st")


class TestMLflow(HookConformance):
    def make(self) -> MLflow:
        return MLflow(uri="sqlite:///nowhere.db")


class TestMixup(HookConformance):
    acts_on_training = True

    def make(self) -> Mixup:
        return Mixup(classes=3)


class TestProfiler(HookConformance):
    def make(self) -> Profiler:
        return Profiler(wait=1, warmup=1, steps=3)


class TestRecording(HookConformance):
    def make(self) -> Recording:
        return Recording(every="2st")


class TestTensorBoard(HookConformance):
    def make(self) -> TensorBoard:
        return TensorBoard(every="2st")


class TestTimeReport(HookConformance):
    def make(self) -> TimeReport:
        return TimeReport()


class TestWandB(HookConformance):
    def make(self) -> WandB:
        return WandB(mode="offline", every="2st")


def test_options_can_be_pickled_and_compared() -> None:
    for options in (
        TrainOptions(for_="3ep", eval_every={"val": "5st"}),
        EngineOptions(deterministic=True),
        OptimOptions(clip=1.0),
        LogOptions(console_every=0),
        HookOptions(on=("train",), every="2ep"),
        LoaderOptions(batch_size=8, workers=2),
    ):
        assert pickle.loads(pickle.dumps(options)) == options
        assert replace(options) == options  # type: ignore[type-var]  # all are dataclasses
