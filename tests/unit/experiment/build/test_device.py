"""Tests of the choice of a device."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import torch

from epochal.errors import ConfigError
from epochal.experiment.build.device import (
    choose_device,
    count_ranks,
    describe_device,
    prepare_debugging,
    refuse_debugging_all,
    refuse_too_many_processes,
)

if TYPE_CHECKING:
    from epochal.experiment.config.choices import Choices


def test_cpu_can_be_asked_for_in_two_ways() -> None:
    assert choose_device({"device": "cpu"}) == choose_device({"gpus": 0}) == torch.device("cpu")


def test_impossible_devices_are_refused_with_a_hint() -> None:
    table: list[tuple[Choices, str]] = [
        ({"device": "cpu", "gpus": 0}, r"--gpus: given together with --device 'cpu'"),
        ({"gpus": -1}, r"--gpus: not a number of accelerators: -1"),
        ({"device": "gpu"}, r"--device: unknown device 'gpu'\n  use cpu, cuda, cuda:1, mps or xpu"),
        ({"device": "cuda:99"}, r"--device: 'cuda:99' does not exist: this machine has \d"),
    ]
    for choices, message in table:
        with pytest.raises(ConfigError, match=message):
            choose_device(choices)


def test_number_of_processes_follows_the_devices() -> None:
    rows: list[tuple[Choices, int]] = [
        ({}, 1),
        ({"device": "cpu"}, 1),
        ({"device": "cpu", "nproc": 3}, 3),
        ({"device": "0,1,2,3"}, 4),
        ({"device": [0, 1]}, 2),
        ({"gpus": 4}, 4),
        ({"gpus": 0, "nproc": 2}, 2),
        ({"device": "0,1", "nproc": 2}, 2),
    ]
    for choices, count in rows:
        assert count_ranks(choices) == count, choices
    with pytest.raises(ConfigError, match="--nproc: given as 3, with 2 devices"):
        count_ranks({"device": "0,1", "nproc": 3})
    with pytest.raises(ConfigError, match="--nproc: must be at least 1, got 0"):
        count_ranks({"nproc": 0})


def test_debugger_is_for_one_process() -> None:
    for choices, count, message in (
        ({"debug": True}, 2, "--debug: debugs one process, and there are 2"),
        ({"debug_rank": 0}, 1, "--debug-rank: names one of several processes"),
        ({"debug_rank": 2}, 2, "--debug-rank: there is no rank 2 of 2 processes"),
    ):
        with pytest.raises(ConfigError, match=message):
            refuse_debugging_all(choices, count)
    for choices, count in (({"debug": True}, 1), ({"debug_rank": 1}, 2), ({}, 3)):
        refuse_debugging_all(choices, count)


def test_more_processes_than_devices_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    refuse_too_many_processes({"device": "cpu", "nproc": 64})
    with pytest.raises(ConfigError, match=r"1000 processes on the CPU, and .* 2 cores"):
        refuse_too_many_processes({"device": "cpu", "nproc": 1000})
    with pytest.raises(ConfigError, match="--restarts: must be at least 0, got -1"):
        refuse_too_many_processes({"device": "cpu", "nproc": 2, "restarts": -1})
    accelerator = torch.device("cuda", 0)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: accelerator)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    rows: list[tuple[Choices, str]] = [
        ({"nproc": 4}, "--nproc: 4 processes, and this machine has 2 of type 'cuda'"),
        ({"nproc": 4, "device": "cuda"}, "--nproc: 4 processes, and this machine has 2"),
        ({"gpus": 4}, "--gpus: 4 processes, and this machine has 2 of type 'cuda'"),
        ({"device": "0,1,2,3"}, "--device: 'cuda:2' does not exist: this machine has 2"),
    ]
    for choices, message in rows:
        with pytest.raises(ConfigError, match=message):
            refuse_too_many_processes(choices)
    fitting: list[Choices] = [{"nproc": 2}, {"gpus": 2}, {"device": "0", "nproc": 4}]
    for choices in fitting:
        refuse_too_many_processes(choices)


def test_each_process_has_its_own_device(monkeypatch: pytest.MonkeyPatch) -> None:
    accelerator = torch.device("cuda", 0)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: accelerator)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    for name, value in {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    rows: list[tuple[Choices, str]] = [
        ({}, "cuda:1"),
        ({"gpus": 4}, "cuda:1"),
        ({"device": "2,3"}, "cuda:3"),
        ({"device": "cuda"}, "cuda:1"),
        ({"device": "cpu"}, "cpu"),
    ]
    for choices, name in rows:
        assert choose_device(choices) == torch.device(name), choices
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(ConfigError, match="names 2 devices, and this process is number 3 here"):
        choose_device({"device": "2,3"})


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_missing_accelerator_is_an_error_if_it_is_asked_for() -> None:
    assert choose_device({}) == torch.device("cpu")
    wanted: list[Choices] = [{"gpus": 1}, {"device": "cuda"}, {"device": "mps"}]
    wanted += [{"device": "0"}, {"device": 0}, {"device": [0]}]
    for choices in wanted:
        with pytest.raises(ConfigError, match="this machine has"):
            choose_device(choices)


def test_a_number_is_an_accelerator_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    accelerator = torch.device("cuda", 0)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: accelerator)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    rows: list[tuple[Choices, str]] = [
        ({"device": "0"}, "cuda:0"),
        ({"device": 1}, "cuda:1"),
        ({"device": [1]}, "cuda:1"),
        ({"device": ["cpu"]}, "cpu"),
    ]
    for choices, name in rows:
        assert choose_device(choices) == torch.device(name), choices
    with pytest.raises(ConfigError, match="'cuda:2' does not exist: this machine has 2"):
        choose_device({"device": "2"})


def test_description_names_the_processor() -> None:
    described = describe_device(torch.device("cpu"))
    assert described["device"] == "cpu"
    assert described["name"]


def test_debugging_makes_kernels_report_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "0")  # also has it restored
    prepare_debugging()
    assert os.environ["CUDA_LAUNCH_BLOCKING"] == "1"
