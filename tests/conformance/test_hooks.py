"""Every hook that comes with epochal passes the suite that users' hooks can run too."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from epochal.components.data.loader import LoaderOptions
from epochal.engine.options import (
    EngineOptions,
    HookOptions,
    LogOptions,
    OptimOptions,
    TrainOptions,
)
from epochal.hooks.banner import Banner
from epochal.hooks.console import Console
from epochal.hooks.early_stopping import EarlyStopping
from epochal.hooks.final_weights import FinalWeights
from epochal.hooks.mixing import Mixup
from epochal.hooks.profiler import Profiler
from epochal.hooks.recording import Recording
from epochal.hooks.time_report import TimeReport
from epochal.testing import Diary, HookConformance


class TestBanner(HookConformance):
    def make(self) -> Banner:
        return Banner(machine={"name": "A100", "driver": "550.54"}, num_defaults=3, source="a.yaml")


class TestConsole(HookConformance):
    def make(self) -> Console:
        return Console(every="2st", grad_norm=True)


class TestDiary(HookConformance):
    def make(self) -> Diary:
        return Diary()


class TestEarlyStopping(HookConformance):
    def make(self) -> EarlyStopping:
        return EarlyStopping(patience=5)


class TestFinalWeights(HookConformance):
    def make(self) -> FinalWeights:
        return FinalWeights()


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


class TestTimeReport(HookConformance):
    def make(self) -> TimeReport:
        return TimeReport()


@pytest.mark.parametrize(
    "options",
    [
        TrainOptions(for_="3ep", eval_every={"val": "5st"}),
        EngineOptions(deterministic=True),
        OptimOptions(clip=1.0),
        LogOptions(console_every=0),
        HookOptions(on=("train",), every="2ep"),
        LoaderOptions(batch_size=8, workers=2),
    ],
    ids=lambda options: type(options).__name__,
)
def test_options_travel_between_processes_and_compare_by_value(options: object) -> None:
    assert pickle.loads(pickle.dumps(options)) == options
    assert replace(options) == options
