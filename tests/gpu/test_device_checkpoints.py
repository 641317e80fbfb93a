"""Checkpoints of states on a CUDA device; skipped without one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from epochal.checkpoint import read_checkpoint, snapshot_to_host, write_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_snapshot_is_pinned_and_does_not_change() -> None:
    weight = torch.randn(64, 8, 3, 3, device="cuda").to(memory_format=torch.channels_last)
    before = weight.clone()
    taken = snapshot_to_host({"model": weight})
    weight.zero_()
    assert taken.tensors["model"].is_pinned()
    assert torch.equal(taken.tensors["model"], before.cpu())


def test_device_state_is_restored_with_strides_and_shared_memory(
    tmp_path: Path,
) -> None:
    rnn = nn.LSTM(4, 8, num_layers=2).cuda()
    conv = nn.Conv2d(3, 8, 3).cuda().to(memory_format=torch.channels_last)
    state = {"rnn": rnn.state_dict(), "conv": conv.state_dict(), "tied": conv.weight}
    write_checkpoint(tmp_path, "a", snapshot_to_host(state), {})
    again, _ = read_checkpoint(tmp_path / "a")
    for name, tensor in rnn.state_dict().items():
        assert torch.equal(again["rnn"][name], tensor.cpu())
    assert torch.equal(again["conv"]["weight"], conv.weight.detach().cpu())
    assert again["conv"]["weight"].stride() == conv.weight.stride()
    assert again["tied"].data_ptr() == again["conv"]["weight"].data_ptr()
