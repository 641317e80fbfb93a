"""Rows gathered by a replayed graph: any order, any position, changing tensors."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import epochal as ep
from epochal.engine.device.move import BatchMover
from epochal.engine.feed.in_memory import InMemoryLoaders
from epochal.engine.feed.sampling_order import DataPass
from epochal.engine.feed.static_inputs import GraphGather, StaticInputs

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

CUDA = torch.device("cuda", 0)
LENGTH, SIZE = 103, 8


def columns(device: torch.device | str = CUDA) -> tuple[Tensor, Tensor]:
    x = torch.randn(LENGTH, 3, 2, generator=torch.Generator().manual_seed(0))
    return x.to(device), torch.arange(LENGTH, device=device)


def places() -> list[Tensor]:
    return [torch.zeros(SIZE, 3, 2, device=CUDA), torch.zeros(SIZE, dtype=torch.int64, device=CUDA)]


def test_rows_keep_their_order_from_any_position() -> None:
    x, label = columns()
    targets = places()
    rows = GraphGather((x, label), targets, LENGTH)
    for seed in (1, 2):
        order = torch.randperm(LENGTH, generator=torch.Generator().manual_seed(seed)).to(CUDA)
        rows.set_order(order)
        for first in (0, SIZE, 2 * SIZE, 40, 40 + SIZE, 0, LENGTH - SIZE):
            rows.gather(first, order)
            expected = order[first : first + SIZE]
            assert torch.equal(targets[1], expected)
            assert torch.equal(targets[0], x[expected])


@pytest.mark.parametrize("resident", [True, None])
@pytest.mark.parametrize("shuffle", [True, False])
def test_pass_equals_that_of_the_loader_from_any_position(
    resident: bool | None, shuffle: bool
) -> None:
    x, label = columns("cpu")
    data = ep.data.Tensors(x, label, resident=resident)
    loader = data.loader(batch_size=SIZE, shuffle=shuffle)
    gatherer, static_inputs = (
        InMemoryLoaders(BatchMover(CUDA, None), is_pinned=True),
        StaticInputs(),
    )
    for epoch in range(4):
        if epoch == 3:
            x.mul_(2)  # seen in the next pass
        found = gatherer.find(loader, DataPass(epoch, epoch, start=epoch), static_inputs)
        plain = InMemoryLoaders().find(loader, DataPass(epoch, epoch, start=epoch))
        assert found is not None
        assert plain is not None
        for number, (given, expected) in enumerate(zip(found.batches, plain.batches, strict=True)):
            if epoch == 0 and number == 4:
                static_inputs.set_targets(targets := places())
            assert all(map(torch.equal, (part.cpu() for part in given), expected))
            is_aimed = len(given[0]) == SIZE and (epoch, number) > (0, 4)
            assert given[0] is targets[0] if is_aimed else given[0].device == CUDA


def test_data_of_another_training_leave_the_device() -> None:
    gatherer, static_inputs = (
        InMemoryLoaders(BatchMover(CUDA, None), is_pinned=True),
        StaticInputs(),
    )
    static_inputs.set_targets(places())
    before = torch.cuda.memory_allocated()
    for epoch in range(3):
        data = ep.data.Tensors(torch.randn(2**18, 3, 2), torch.arange(2**18), resident=True)
        found = gatherer.find(
            data.loader(batch_size=SIZE, shuffle=True), DataPass(0, epoch), static_inputs
        )
        assert found is not None
        next(found.batches)
        assert torch.cuda.memory_allocated() - before < 2 * 8 * 2**20  # one copy and its order
        del found
