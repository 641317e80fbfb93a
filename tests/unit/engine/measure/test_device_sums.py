"""Tests of sums on a device; they use host memory as the device."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from epochal.engine.measure.sums import DeviceSums

if TYPE_CHECKING:
    from collections.abc import Callable

CPU = torch.device("cpu")


class Operations(TorchDispatchMode):
    """Notes the names of operations."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func.name()))
        return func(*args, **kwargs or {})


def operations(function: Callable[[], object]) -> list[str]:
    with Operations() as counted:
        function()
    return [name for name in counted.names if name != "aten::detach"]


def test_values_times_counts_and_counts_are_summed() -> None:
    sums = DeviceSums(CPU)
    sums.add({"loss": (torch.tensor(2.0), 3), "acc": (0.5, 4), "n": (torch.tensor(7), True)})
    sums.add({"loss": (torch.tensor([1.0]), torch.tensor(2)), "acc": (torch.tensor(1.0), 0.5)})
    totals = sums.take().read()
    assert totals == {"loss": (8.0, 5.0), "acc": (2.5, 4.5), "n": (7.0, 1.0)}


def test_a_value_whose_count_is_a_number_costs_one_operation() -> None:
    sums = DeviceSums(CPU)
    loss = torch.tensor(2.0, requires_grad=True) * 1
    sums.add({"loss": (loss, 3)})
    assert operations(lambda: sums.add({"loss": (loss, 3)})) == ["aten::add_.Tensor"]


def test_sums_never_move_in_memory() -> None:
    sums = DeviceSums(CPU)
    sums.add({"loss": (torch.tensor(2.0), 1)})
    before = sums.state_tensors()
    sums.take()
    sums.add({f"m{index}": (torch.tensor(float(index)), 1) for index in range(100)})
    after = sums.state_tensors()
    assert {name: tensor.data_ptr() for name, tensor in before.items()}.items() <= {
        name: tensor.data_ptr() for name, tensor in after.items()
    }.items()
    totals = sums.take().read()
    assert totals == {f"m{index}": (float(index), 1.0) for index in range(100)}
    assert all(not tensor.any() for tensor in after.values())


@pytest.mark.parametrize("count", [0, -1, torch.tensor(0), torch.tensor(-2)])
def test_values_without_items_add_nothing(count: float) -> None:
    sums = DeviceSums(CPU)
    sums.add({"loss": (torch.tensor(math.nan), count)})
    assert sums.take().read().get("loss", (0.0, 0.0)) == (0.0, 0.0)


def test_a_replayed_step_repeats_the_host_additions() -> None:
    sums = DeviceSums(CPU)
    values = {"loss": (torch.tensor(2.0), 3), "lam": (0.5, 4), "n": (1.0, torch.tensor(2))}
    sums.add(values)
    (vector,) = sums.state_tensors().values()
    kept = vector.clone()
    with sums.capture_additions() as notes:
        sums.add(values)
    vector.copy_(kept)  # as if the step had been captured, not taken
    assert notes == [("loss", 0.0, 3), ("lam", 2.0, 4), ("n", 0.0, 0.0)]
    for _ in range(2):
        vector.add_(kept)
        sums.replay_additions(notes)
    assert sums.take().read() == {"loss": (18.0, 9.0), "lam": (6.0, 12.0), "n": (6.0, 6.0)}


def test_restored_sums_keep_their_places() -> None:
    counted, other = DeviceSums(CPU), DeviceSums(CPU)
    for name in ("loss", "accuracy"):
        counted.add({name: (torch.tensor(2.0), torch.tensor(3.0))})
    other.load_state_dict(counted.state_dict())
    for place in ("sums", "counts"):
        assert other.state_dict()[place] == counted.state_dict()[place]
    assert torch.equal(other.state_dict()["chunks"][0], counted.state_dict()["chunks"][0])
