"""Tests of what a step changes, kept aside and put back."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from engine.parts import Sums, adder, fit, make_run
from epochal.engine.snapshot.tensor_snapshot import TensorSnapshot, find_state_tensors

CPU = torch.device("cpu")


def snapshot(**tensors: Tensor) -> TensorSnapshot:
    return TensorSnapshot(tensors, CPU)


def test_parameters_buffers_and_moments_are_found_once_each() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    model.append(model[2])  # tied
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 3)[:, :3]) if False else None
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    run = make_run(Sums(), model, parts={"optimizer": optimizer})
    found = find_state_tensors(run)
    assert {"model.0.weight", "model.1.running_mean", "model.2.bias"} <= found.keys()
    assert "model.3.weight" not in found
    assert "optim.state.0.exp_avg" in found
    assert len({id(tensor) for tensor in found.values()}) == len(found)


def test_tensors_and_modules_of_a_task_are_found() -> None:
    task = Sums()
    task.queue = torch.zeros(3)  # type: ignore[attr-defined]
    task.head = nn.Linear(1, 1)  # type: ignore[attr-defined]
    found = find_state_tensors(make_run(task))
    assert found["task.queue"] is task.queue  # type: ignore[attr-defined]
    assert "task.head.weight" in found


def test_contents_come_back_in_place_with_the_random_generator() -> None:
    weight, count = torch.randn(3), torch.tensor(4)
    kept = snapshot(weight=weight, count=count)
    before, drawn = weight.clone(), torch.rand(1)
    weight.add_(1)
    count.add_(1)
    kept.restore()
    assert torch.equal(weight, before)
    assert count.item() == 4
    assert torch.equal(torch.rand(1), drawn)


def test_parameters_that_require_gradients_come_back_too() -> None:
    model = adder()
    kept = TensorSnapshot(find_state_tensors(make_run(Sums(), model)), CPU)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    fit(make_run(Sums(), model, for_="1ep"))
    kept.restore()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_equal_bits_have_no_difference_even_if_they_are_not_numbers() -> None:
    values = torch.tensor([math.nan, math.inf, 1.0])
    assert snapshot(x=values).first_difference(snapshot(x=values.clone())) == ""


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64, torch.bool])
def test_the_tensor_that_differs_is_named_whatever_its_type(dtype: torch.dtype) -> None:
    here = snapshot(x=torch.zeros(3), y=torch.zeros(2, dtype=dtype))
    there = snapshot(x=torch.zeros(3), y=torch.ones(2, dtype=dtype))
    assert here.first_difference(there) == "y"


def test_complex_and_zero_dimensional_tensors_compare() -> None:
    here = snapshot(z=torch.tensor(1 + 2j))
    assert here.first_difference(snapshot(z=torch.tensor(1 + 2j))) == ""
    assert here.first_difference(snapshot(z=torch.tensor(1 + 3j))) == "z"


def test_the_distance_is_a_share_of_the_way_that_weights_went() -> None:
    start = snapshot(**{"model.w": torch.zeros(4), "optim.m": torch.zeros(4)})
    first = snapshot(**{"model.w": torch.full((4,), 2.0), "optim.m": torch.zeros(4)})
    second = snapshot(**{"model.w": torch.full((4,), 2.5), "optim.m": torch.ones(4)})
    assert first.gap(second, start, "model.") == pytest.approx(0.25)
    assert first.gap(first, start, "model.") == 0.0
    assert start.gap(second, start, "model.") == math.inf
    assert first.gap(second, start, "optim.") == math.inf


def test_tensors_in_containers_and_objects_of_a_task_are_found() -> None:
    task = Sums()
    task.table = {"bank": [torch.zeros(3)]}  # type: ignore[attr-defined]
    task.norm = SimpleNamespace(mean=torch.zeros(1))  # type: ignore[attr-defined]
    task.heads = [nn.Linear(1, 1)]  # type: ignore[attr-defined]
    run = make_run(task)
    run.store.set("queue", torch.zeros(2))
    found = find_state_tensors(run)
    assert {"task.table['bank'][0]", "task.norm.mean", "task.heads[0].weight"} <= found.keys()
    assert "store['_globals']['queue']" in found


def test_tensors_that_cannot_be_written_or_are_data_are_left_alone() -> None:
    task = Sums()
    task.wide = torch.zeros(1).expand(3)  # type: ignore[attr-defined]
    task.empty = torch.zeros(3, device="meta")  # type: ignore[attr-defined]
    task.sparse = torch.eye(3).to_sparse()  # type: ignore[attr-defined]
    task.images = torch.zeros(1 << 19)  # type: ignore[attr-defined]
    with torch.inference_mode():
        task.fixed = torch.zeros(3)  # type: ignore[attr-defined]
    run = make_run(task)
    run.device = torch.device("cuda")
    assert not [name for name in find_state_tensors(run) if name.startswith("task")]


def test_parameters_that_only_the_optimizer_knows_are_found() -> None:
    model, extra = adder(), nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([*model.parameters(), extra], lr=0.1)
    found = find_state_tensors(make_run(Sums(), model, parts={"optimizer": optimizer}))
    assert found["optim.0.params.4"] is extra
    assert "optim.0.params.0" not in found


def test_a_task_that_is_a_module_has_its_parameters_found() -> None:
    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.train_loader = Sums().train_loader
            self.head = nn.Linear(1, 1)

        batch_forward = Sums.batch_forward
        batch_loss = Sums.batch_loss

    assert {"task.head.weight", "task.head.bias"} <= find_state_tensors(make_run(Whole())).keys()
