"""The result of a profile in numbers and one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from epochal.hooks.profiler import Operator, Profile, operator_lines, summarise


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
            "the run waited for data 40% of the time: raise data.train.workers, or keep small "
            "data in memory with ep.data.Tensors",
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
