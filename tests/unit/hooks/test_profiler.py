"""The profiler: what it records, writes and reports."""

from __future__ import annotations

import gzip
import json
import logging
import os
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from epochal.engine.execute import execute
from epochal.engine.interfaces.hook import Hook
from epochal.engine.run.engine_run import Environment
from epochal.engine.runner import Train
from epochal.errors import ConfigError
from epochal.hooks.profiler import Operator, Profile, Profiler, operator_lines, summarise
from epochal.testing import InjectedError, TinyModel, short_options, tiny_run

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.engine import Run, RunResult


def train(
    *hooks: Hook, dir: Path | None = None, model: TinyModel | None = None, for_: str = "20st"
) -> RunResult:
    setting = Environment(dir=dir)
    options = short_options(for_=for_, eval_every=0)
    run = tiny_run(*hooks, model=model or TinyModel(), setting=setting, options=options)
    return execute(run, Train())


def marks(dir: Path) -> list[str]:
    with gzip.open(dir / "profile" / "trace.json.gz") as file:
        trace = json.load(file)
    names = {str(event.get("name", "")) for event in trace["traceEvents"]}
    return sorted(name for name in names if name.startswith("ProfilerStep#"))


def test_the_trace_has_a_mark_for_each_requested_step(tmp_path: Path) -> None:
    train(Profiler(wait=2, warmup=1, steps=4), dir=tmp_path)
    assert marks(tmp_path) == [f"ProfilerStep#{number}" for number in (3, 4, 5, 6)]
    assert "aten::addmm" in (tmp_path / "profile" / "table.txt").read_text()


def test_each_recorded_step_calls_each_operator_once(tmp_path: Path) -> None:
    profiler = Profiler(wait=1, warmup=1, steps=3)
    train(profiler, dir=tmp_path, for_="5st")
    assert profiler.result is not None
    calls = {one.name: one.calls for one in profiler.result.operators}
    assert calls["aten::addmm"] == 1
    assert profiler.result.steps == 3
    assert profiler.result.step_seconds > 0
    assert profiler.result.times["steps"] > 0


def test_losses_are_the_same_bit_for_bit(tmp_path: Path) -> None:
    class Losses(Hook):
        def __init__(self) -> None:
            self.values: list[bytes] = []

        def step_end(self, run: Run) -> None:
            self.values.append(run.model.linear.weight.detach().numpy().tobytes())

    models = []
    for hooks in ([Profiler(wait=1, warmup=1, steps=3, shapes=True, memory=True)], []):
        torch.manual_seed(0)
        model, losses = TinyModel(), Losses()
        train(*hooks, losses, dir=tmp_path, model=model)
        models.append(losses.values)
    assert models[0] == models[1]


def test_a_run_that_ends_earlier_writes_the_recorded_steps(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    profiler = Profiler(wait=1, warmup=1, steps=10)
    with caplog.at_level(logging.INFO):
        assert train(profiler, dir=tmp_path, for_="5st").ok
    assert profiler.result is not None
    assert profiler.result.steps == 3
    assert marks(tmp_path)[:3] == [f"ProfilerStep#{number}" for number in (2, 3, 4)]
    assert "profiled 3 of 10 steps, then the run ended; trace and table are in" in caplog.text


def test_a_failed_run_writes_the_recorded_steps(tmp_path: Path) -> None:
    class Broken(Hook):
        def step_end(self, run: Run) -> None:
            if run.step == 4:
                raise InjectedError("on purpose")

    result = train(Profiler(wait=1, warmup=1, steps=10), Broken(), dir=tmp_path)
    assert result.exception_type == "InjectedError"
    assert marks(tmp_path)[:2] == ["ProfilerStep#2", "ProfilerStep#3"]


def test_a_run_too_short_to_record_warns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert train(Profiler(wait=3, warmup=2), dir=tmp_path, for_="4st").ok
    assert (
        "nothing was recorded: the run ended after 4 steps, and at least 6 are needed"
        in caplog.text
    )
    assert not (tmp_path / "profile").exists()


def test_the_log_names_the_trace_and_the_top_operators(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        train(Profiler(wait=0, warmup=1, steps=2), dir=tmp_path)
    lines = [one.getMessage() for one in caplog.records if "profiler" in one.name]
    assert lines[0] == f"profiled 2 steps; trace and table are in {tmp_path / 'profile'}"
    assert lines[1].split() == ["operator", "calls", "host", "share"]
    assert len(lines) == 7


def test_without_a_record_only_the_log_has_operators(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        train(Profiler(wait=0, warmup=1, steps=2))
    assert "profiled 2 steps\n" in caplog.text


def test_the_profiler_can_end_the_run(tmp_path: Path) -> None:
    profiler = Profiler(wait=1, warmup=1, steps=2)
    profiler.stops_run, profiler.dir = True, tmp_path / "here"
    result = train(profiler)
    assert (result.reason, result.steps) == ("profiled", 4)
    assert (tmp_path / "here" / "trace.json.gz").exists()


def test_a_folder_that_cannot_be_written_does_not_end_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    profiler = Profiler(wait=0, warmup=1, steps=2)
    (tmp_path / "file").write_text("in the way")
    profiler.dir = tmp_path / "file" / "profile"
    assert train(profiler).ok
    assert "the profile was not written" in caplog.text


def test_a_second_profiler_warns_and_records_nothing(caplog: pytest.LogCaptureFixture) -> None:
    first, second = Profiler(wait=0, warmup=1, steps=2), Profiler(wait=0, warmup=1, steps=2)
    assert train(first, second).ok
    assert first.result is not None
    assert second.result is None
    assert "another Profiler of this run is on" in caplog.text


def test_one_object_can_serve_several_runs(tmp_path: Path) -> None:
    profiler = Profiler(wait=0, warmup=1, steps=2)
    for name in ("one", "two"):
        train(profiler, dir=tmp_path / name)
        assert len(marks(tmp_path / name)) == 2


@pytest.mark.parametrize(("key", "value"), [("wait", -1), ("warmup", 0), ("steps", 0)])
def test_invalid_step_counts_are_errors(key: str, value: int) -> None:
    given: dict[str, Any] = {key: value}
    with pytest.raises(ConfigError, match=rf"Profiler\.{key}: must be at least"):
        Profiler(**given)


def test_the_environment_is_restored(tmp_path: Path) -> None:
    before = dict(os.environ)
    train(Profiler(wait=0, warmup=1, steps=2), dir=tmp_path)
    assert dict(os.environ) == before


@dataclass
class Average:
    """The averages of one operator as in torch, in microseconds."""

    key: str
    count: int
    self_cpu_time_total: float
    self_device_time_total: float = 0.0
    kind: str = "CPU"
    is_user_annotation: bool = False

    @property
    def device_type(self) -> Any:
        return SimpleNamespace(name=self.kind)


MM = Operator("aten::mm", 5, 0.003, 0.0)
ADD = Operator("aten::add", 2, 0.001, 0.0)


def test_numbers_are_per_step() -> None:
    operators, device_seconds = summarise([Average("aten::mm", 4, 200.0)], steps=2)
    assert operators == [Operator("aten::mm", 2.0, 0.0001, 0.0)]
    assert device_seconds == 0


def test_step_marks_count_as_python_between_operators() -> None:
    rows = [Average("aten::add", 2, 10.0), Average("ProfilerStep*", 2, 30.0)]
    operators, _ = summarise(rows, steps=2)
    assert [one.name for one in operators] == ["(Python, between operators)", "aten::add"]


def test_python_lines_are_left_out() -> None:
    rows = [
        Average("epochal/engine/plan.py(163): _run_due_calls", 2, 10.0),
        Average("<built-in function fsync>", 2, 10.0),
        Average("aten::add", 2, 10.0),
    ]
    assert [one.name for one in summarise(rows, steps=1)[0]] == ["aten::add"]


def test_kernels_count_with_the_operators_that_started_them() -> None:
    rows = [
        Average("aten::mm", 1, 10.0, 80.0),
        Average("gemm", 1, 0.0, 80.0, kind="CUDA"),
        Average("ProfilerStep#3", 1, 0.0, 100.0, kind="CUDA", is_user_annotation=True),
    ]
    operators, device_seconds = summarise(rows, steps=1)
    assert [one.name for one in operators] == ["aten::mm"]
    assert device_seconds == pytest.approx(80e-6)


def test_kernels_of_a_cuda_graph_are_listed_themselves() -> None:
    rows = [
        Average("cudaGraphLaunch", 1, 10.0, 0.0),
        Average("gemm", 1, 0.0, 80.0, kind="CUDA"),
    ]
    operators, _ = summarise(rows, steps=1)
    assert [one.name for one in operators] == ["gemm", "cudaGraphLaunch"]


def test_lines_show_the_operators_that_take_most_time() -> None:
    assert operator_lines(Profile(10, 0.005, [MM, ADD]), 5) == [
        "operator   calls  host  share",
        "aten::mm       5  3 ms    75%",
        "aten::add      2  1 ms    25%",
    ]
    assert len(operator_lines(Profile(10, 0.005, [MM, ADD]), 1)) == 2


def test_lines_show_the_device_if_there_is_one() -> None:
    mm = Operator("aten::" + "m" * 60, 5, 0.003, 0.002)
    header, line = operator_lines(Profile(10, 0.005, [mm], 0.004), 5)
    assert header.split() == ["operator", "calls", "host", "device", "share"]
    assert line.endswith("…      5  3 ms    2 ms    50%")


@pytest.mark.parametrize(
    ("profile", "advice"),
    [
        (Profile(10, 0.005, [MM, ADD]), "aten::mm takes 75% of the host's time"),
        (
            Profile(10, 0.005, [Operator("aten::mm", 1, 0.1, 0.001)], 0.001),
            "the device was busy 20% of the time: engine.step: auto or graph takes work off the "
            "host",
        ),
        (
            Profile(10, 0.005, [Operator("aten::mm", 1, 0.1, 0.004)], 0.005),
            "aten::mm takes 80% of the device's time",
        ),
        (
            Profile(10, 0.005, [MM], times={"steps": 0.06, "data wait": 0.04}),
            "the run waited for data 40% of the time: give the loader more workers (num_workers, "
            "or data.train.workers), or keep small data in memory with ep.data.Tensors",
        ),
        (Profile(10, 0.005, []), "no operator was recorded"),
        (
            Profile(10, 0.005, [Operator("(Python, between operators)", 1, 0.004, 0.0), ADD]),
            "Python between operators takes 80% of the host's time: use larger batches or "
            "engine.step: compile",
        ),
    ],
)
def test_advice_names_what_takes_most_time(profile: Profile, advice: str) -> None:
    assert profile.advice == advice


def test_shares_separate_data_wait_host_and_device() -> None:
    times = {"steps": 3.0, "data wait": 1.0}
    profile = Profile(10, 0.01, [MM], 0.005, times)
    assert profile.shares == {"data wait": 0.25, "host": 0.75, "device": 0.5}
    assert Profile(10, 0.0, []).shares == {"data wait": 0.0, "host": 1.0}
