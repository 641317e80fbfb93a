"""Tests of buffers that are put back."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from epochal.engine.step.nonfinite_guard import BufferSnapshot


def make_buffers() -> list[Tensor]:
    return [
        torch.ones(2, 3),
        torch.tensor(5),
        torch.zeros(4),
        torch.empty(0),
        torch.tensor([True, False]),
        torch.ones(1, 2, 2, 2).to(memory_format=torch.channels_last),
    ]


def change(buffers: list[Tensor]) -> None:
    for buffer in buffers:
        if buffer.is_floating_point():
            buffer.fill_(float("nan"))
        else:
            buffer.zero_()


@pytest.mark.parametrize("skipped", [0.0, 1.0])
def test_buffers_are_put_back_only_where_a_step_was_left_out(skipped: float) -> None:
    buffers, expected = make_buffers(), make_buffers()
    snapshot = BufferSnapshot(buffers, torch.device("cpu"))
    snapshot.save()
    change(buffers)
    if not skipped:
        change(expected)
    strides = [buffer.stride() for buffer in buffers]
    snapshot.restore_if_skipped(torch.tensor(skipped))
    for buffer, one in zip(buffers, expected, strict=True):
        assert torch.equal(buffer.nan_to_num(7.0), one.nan_to_num(7.0))
    assert strides == [buffer.stride() for buffer in buffers]


def test_a_step_that_kept_nothing_is_left_alone() -> None:
    buffers = make_buffers()
    snapshot = BufferSnapshot(buffers, torch.device("cpu"))
    snapshot.save()
    snapshot.restore_if_skipped(torch.tensor(0.0))
    change(buffers)
    snapshot.restore_if_skipped(torch.tensor(1.0))
    assert buffers[0].isnan().all()


def test_what_lies_elsewhere_cannot_be_put_back() -> None:
    elsewhere = torch.ones(2, device="meta")
    snapshot = BufferSnapshot([elsewhere, *make_buffers()], torch.device("cpu"))
    snapshot.save()
    snapshot.restore_if_skipped(torch.tensor(1.0))
