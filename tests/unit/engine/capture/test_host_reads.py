"""Tests of noting and refusing host reads; torch's mode is a variable here, without a device."""

from __future__ import annotations

import warnings

import pytest
import torch

from epochal.engine.capture.cuda_graph import is_host_read, noting_host_reads, refusing_host_reads

CUDA = torch.device("cuda")
READ = "called a synchronizing CUDA operation"


@pytest.fixture
def modes(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    modes: list[object] = [0]

    def set_mode(mode: object) -> None:
        warnings.warn("Synchronization debug mode is a prototype feature", stacklevel=1)
        modes.append(mode)

    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: modes[-1])
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", set_mode)
    return modes


def test_host_reads_are_noted_and_other_warnings_are_not(modes: list[object]) -> None:
    with noting_host_reads(CUDA) as found:
        warnings.warn("deprecated", stacklevel=1)
    assert found == []
    with noting_host_reads(CUDA) as found:
        warnings.warn(READ, stacklevel=1)
    assert found == [READ]
    assert modes == [0, "warn", 0, "warn", 0]


def test_the_mode_of_torch_is_restored_after_a_refused_read(modes: list[object]) -> None:
    with pytest.raises(RuntimeError) as caught, refusing_host_reads(CUDA):
        raise RuntimeError(READ)
    assert is_host_read(caught.value)
    assert modes == [0, "error", 0]


def test_other_devices_are_left_alone(modes: list[object]) -> None:
    with noting_host_reads(torch.device("cpu")) as found, refusing_host_reads(torch.device("cpu")):
        pass
    assert found == []
    assert modes == [0]
