"""Tests of the state of modules."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from epochal.checkpoint import deserialize_state, snapshot_to_host
from epochal.engine.state.run_state import collect_module, restore_module
from epochal.errors import CheckpointError
from resume import digest

HOST = torch.device("cpu")


def stored(state: Any) -> Any:
    taken = snapshot_to_host({"model": state})
    return deserialize_state(taken.plain, taken.tensors)["model"]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.register_buffer("cache", torch.zeros(2), persistent=False)
        self.count = 0

    def get_extra_state(self) -> dict[str, int]:
        return {"count": self.count}

    def set_extra_state(self, state: dict[str, int]) -> None:
        self.count = state["count"]


def test_weights_buffers_modes_and_frozen_flags_are_restored_in_place() -> None:
    net = Net().to(memory_format=torch.channels_last)
    net.norm(torch.randn(2, 4, 3, 3))
    net.cache += 3
    net.count = 5
    net.norm.eval()
    net.conv.weight.requires_grad_(False)
    state = stored(collect_module(net))
    other = Net().to(memory_format=torch.channels_last)
    weight, cache = other.conv.weight, other.cache
    restore_module(other, state, HOST, "model")
    assert digest(collect_module(other)) == digest(state)
    assert (other.conv.weight, other.cache) == (weight, cache)
    assert other.conv.weight.stride() == net.conv.weight.stride()
    assert (other.norm.training, other.conv.training, other.count) == (False, True, 5)


def test_tied_weights_stay_tied() -> None:
    def build() -> nn.Sequential:
        net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        net[1].weight = net[0].weight
        return net

    net, other = build(), build()
    restore_module(other, stored(collect_module(net)), HOST, "model")
    assert other[1].weight is other[0].weight
    assert torch.equal(other[0].weight, net[0].weight)


def test_a_buffer_of_another_size_is_replaced() -> None:
    net, other = Net(), Net()
    net.cache = torch.ones(7)
    restore_module(other, stored(collect_module(net)), HOST, "model")
    assert other.cache.tolist() == [1.0] * 7


def test_a_state_of_another_module_is_refused() -> None:
    linear = collect_module(nn.Linear(2, 2))
    buffered = {**linear, "buffers": {"head.cache": torch.ones(1)}}
    named = collect_module(nn.Sequential(nn.Linear(2, 2)))
    table: list[tuple[nn.Module, Any, str]] = [
        (
            nn.Sequential(nn.Identity(), nn.Linear(2, 2)),
            named,
            r"missing.*1\.weight.*\n.*only.*0\.weight, 0\.bias",
        ),
        (nn.Linear(3, 2), linear, r"model: cannot load its saved weights.*\n.*size mismatch"),
        (nn.Linear(2, 2), buffered, r"has no buffer 'head\.cache'"),
    ]
    for module, state, message in table:
        with pytest.raises(CheckpointError, match=message):
            restore_module(module, state, HOST, "model")
