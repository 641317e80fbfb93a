"""Tests of the choice of a device."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import torch

from epochal.errors import ConfigError
from epochal.experiment.build.device import choose_device, describe_device, prepare_debugging

if TYPE_CHECKING:
    from epochal.experiment.config.choices import Choices


def test_cpu_can_be_asked_for_in_two_ways() -> None:
    assert choose_device({"device": "cpu"}) == choose_device({"gpus": 0}) == torch.device("cpu")


def test_impossible_devices_are_refused_with_a_hint() -> None:
    table: list[tuple[Choices, str]] = [
        ({"device": "cpu", "gpus": 0}, r"--gpus: given together with --device 'cpu'"),
        ({"gpus": 2}, r"--gpus: one run trains on one device for now, got 2\n  use --gpus 1"),
        ({"gpus": -1}, r"--gpus: not a number of accelerators: -1"),
        ({"device": "gpu"}, r"--device: unknown device 'gpu'\n  use cpu, cuda, cuda:1, mps or xpu"),
        ({"device": [0, 1]}, r"--device: one run trains on one device for now, got \[0, 1\]"),
        ({"device": "cuda:99"}, r"--device: 'cuda:99' is not here: this machine has \d"),
    ]
    for choices, message in table:
        with pytest.raises(ConfigError, match=message):
            choose_device(choices)


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
    with pytest.raises(ConfigError, match="'cuda:2' is not here: this machine has 2"):
        choose_device({"device": "2"})


def test_description_names_the_processor() -> None:
    described = describe_device(torch.device("cpu"))
    assert described["device"] == "cpu"
    assert described["name"]


def test_debugging_makes_kernels_report_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_LAUNCH_BLOCKING", raising=False)
    prepare_debugging()
    assert os.environ["CUDA_LAUNCH_BLOCKING"] == "1"
