"""Time measurement on a CUDA device; skipped without one."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pytest
import torch

import epochal as ep
from epochal.hooks.profiler import Profiler
from epochal.testing import TinyModel, TinyTask

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_a_run_records_the_use_of_its_gpu(tmp_path: Path) -> None:
    pytest.importorskip("pynvml")
    parts = {"task": TinyTask(), "model": TinyModel(), "optim": {"type": "AdamW"}}
    choices = {"device": "cuda", "raise_errors": True}
    result = ep.Experiment(choices=choices, **parts, record={"log_dir": tmp_path}).fit(epochs=1)
    assert result.dir is not None
    found = ep.read(result.dir).system.summarise()
    assert found["system/gpu0/memory"][1] > 1e8
    assert 0 <= found["system/gpu0/use"][1] <= 100
    assert found["system/gpu0/power"][1] > 1
    assert 10 < found["system/gpu0/temperature"][1] < 120


def train(*hooks: object, for_: str = "300st") -> ep.RunResult:
    parts = {"task": TinyTask(), "model": TinyModel(), "hooks": list(hooks)}
    options = {"optim": {"type": "AdamW"}, "train": {"for": for_, "eval_every": 0}}
    choices = {"device": "cuda", "no_file": True, "raise_errors": True}
    return ep.Experiment(choices=choices, **parts, **options).fit()


def test_device_time_of_steps_is_measured_without_waiting() -> None:
    result = train()
    assert result.device_time["samples"] >= 2
    assert 0 <= result.device_time["behind"] <= 1
    assert 0 < result.device_time["step_seconds"] < 1


def test_busy_device_is_reported_as_behind() -> None:
    class Busy(ep.Hook):
        """Queues more work than the device can do in the time of the host."""

        def __init__(self) -> None:
            self.x = torch.ones(4096, 4096, device="cuda")

        def batch_end(
            self, run: ep.Run, split: str, index: int, batch: object, out: object
        ) -> None:
            for _ in range(8):
                self.x @ self.x

    assert train(Busy()).device_time["behind"] > 0.5


def test_profiler_sees_kernels(tmp_path: Path) -> None:
    profiler = Profiler(wait=2, warmup=2, steps=4)
    profiler.dir = tmp_path / "profile"
    train(profiler, for_="20st")
    assert profiler.result is not None
    assert profiler.result.device_seconds > 0
    assert 0 < profiler.result.busy_share <= 1
    with gzip.open(profiler.dir / "trace.json.gz") as file:
        trace = json.load(file)
    kinds = {event.get("cat") for event in trace["traceEvents"]}
    assert "kernel" in kinds
