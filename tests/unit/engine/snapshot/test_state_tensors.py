"""Tests of finding the tensors that a step changes."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import nn

from engine.parts import Sums, adder, make_run
from epochal.engine.snapshot.run_objects import find_state_tensors


def test_parameters_buffers_and_moments_are_found_once_each() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    model.append(model[2])  # tied
    extra = nn.Parameter(torch.zeros(2))  # only the optimizer has it
    optimizer = torch.optim.AdamW([*model.parameters(), extra])
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    found = find_state_tensors(make_run(Sums(), model, parts={"optimizer": optimizer}))
    assert {"model.0.weight", "model.1.running_mean", "model.2.bias"} <= found.keys()
    assert "model.3.weight" not in found
    assert "optim.state.0.exp_avg" in found
    assert found["optim.0.params.6"] is extra
    assert len({id(tensor) for tensor in found.values()}) == len(found)


def test_tensors_of_a_task_and_its_store_are_found_at_any_depth() -> None:
    task = Sums()
    task.queue = torch.zeros(3)  # type: ignore[attr-defined]
    task.table = {"bank": [torch.zeros(3)]}  # type: ignore[attr-defined]
    task.norm = SimpleNamespace(mean=torch.zeros(1))  # type: ignore[attr-defined]
    task.heads = [nn.Linear(1, 1)]  # type: ignore[attr-defined]
    run = make_run(task)
    run.store.set("queue", torch.zeros(2))
    found = find_state_tensors(run)
    assert found["task.queue"] is task.queue  # type: ignore[attr-defined]
    assert {"task.table['bank'][0]", "task.norm.mean", "task.heads[0].weight"} <= found.keys()
    assert "store['_globals']['queue']" in found


def test_tensors_that_cannot_be_written_or_are_data_are_left_out() -> None:
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


def test_a_task_that_is_a_module_has_its_parameters_found() -> None:
    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.train_loader = Sums().train_loader
            self.head = nn.Linear(1, 1)
            self.register_parameter("bias", nn.Parameter(adder()[0].bias[:1]))

        batch_forward = Sums.batch_forward
        batch_loss = Sums.batch_loss

    assert {"task.head.weight", "task.bias"} <= find_state_tensors(make_run(Whole())).keys()
