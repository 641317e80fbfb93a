"""Tests of the task and of the task of models that know their loss."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from engine.parts import Sums, adder, fit, make_run, weights
from epochal.engine import ModuleTask, Task
from epochal.engine.interfaces.task import OPTIONAL_METHODS, REQUIRED_METHODS
from epochal.engine.loss.loss import Loss, LossTerm
from epochal.errors import TaskError


class Knowing(nn.Module):
    """Returns its loss beside its output."""

    def __init__(self, shape: str = "mapping") -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)
        self.shape = shape

    def forward(self, features: Tensor, sums: Tensor) -> Any:
        out = self.layer(features)
        loss = (out - sums).square().mean()
        if self.shape == "mapping":
            return {"loss": loss, "loss_l1": (out - sums).abs().mean(), "out": out}
        if self.shape == "pair":
            return {"out": out}, {"mse": loss, "zero": loss * 0}
        return out, {"loss": loss}


class Modes(Knowing):
    """Has a forward of its own for each mode."""

    def train_forward(self, batch: list[Tensor]) -> Any:
        return self(*batch)

    def infer_forward(self, batch: list[Tensor]) -> Any:
        return {"raw": self.layer(batch[0])}

    def postprocess(self, out: dict[str, Tensor]) -> Any:
        return {"doubled": out["raw"] * 2}


def module_task(*, named: bool = False) -> ModuleTask:
    task, source = ModuleTask(), Sums()
    batches = [list(batch) for batch in source.train_loader]
    if named:
        task.train_loader = [{"features": one, "sums": two} for one, two in batches]
    else:
        task.train_loader = batches
    return task


def test_the_base_class_defines_no_optional_methods() -> None:
    assert not [name for name in (*REQUIRED_METHODS, *OPTIONAL_METHODS) if hasattr(Task, name)]


def test_each_task_has_its_own_meta() -> None:
    first, second = Task(), Task()
    first.meta["classes"] = ["a"]
    assert second.meta == {}
    second.meta = {"mine": 1}
    assert second.meta == {"mine": 1}


@pytest.mark.parametrize("shape", ["mapping", "pair", "bare"])
@pytest.mark.parametrize("named", [False, True])
def test_a_model_with_its_own_loss_needs_no_code(shape: str, named: bool) -> None:
    result = fit(make_run(module_task(named=named), Knowing(shape), for_="2ep"))
    assert result.metrics["train/epoch/loss"] > 0


def test_other_scalar_losses_are_logged_and_tensors_are_not() -> None:
    out = {"loss": torch.ones(()), "aux_loss": torch.ones(()), "loss_map": torch.ones(3), "x": 1}
    assert set(ModuleTask().batch_loss(out, None)) == {"loss", "aux_loss"}


def test_losses_without_a_total_are_summed() -> None:
    model = Knowing("pair")
    out = ModuleTask().batch_forward(model, [torch.ones(2, 3), torch.ones(2, 1)])
    assert torch.equal(out["loss"], out["mse"] + out["zero"])


def test_training_and_inference_use_their_own_forward() -> None:
    model, batch = Modes(), [torch.ones(2, 3), torch.ones(2, 1)]
    assert "loss" in ModuleTask().batch_forward(model, batch)
    assert set(ModuleTask().batch_forward(model.eval(), batch)) == {"doubled"}


def test_a_model_of_one_argument_gets_the_batch() -> None:
    out = ModuleTask().batch_forward(nn.Linear(3, 1), torch.ones(2, 3))
    assert out["outputs"].shape == (2, 1)


def test_a_model_that_returns_no_loss_cannot_train() -> None:
    task = ModuleTask()
    task.train_loader = [torch.ones(2, 3)]
    with pytest.raises(TaskError, match=r"ModuleTask.batch_loss: returned no 'loss', only \[\]"):
        fit(make_run(task, nn.Linear(3, 1), for_="1ep"))


def test_a_configured_loss_needs_no_task_code() -> None:
    task, model = module_task(), adder()
    run = make_run(task, model, parts={"loss": Loss([LossTerm(nn.MSELoss())])})
    result = fit(run)
    other = adder()
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    for _ in range(10):
        for features, sums in task.train_loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(other(features), sums).backward()
            optimizer.step()
    assert torch.equal(weights(model), weights(other))
    assert result.metrics["train/epoch/loss"] >= 0


def test_a_model_gets_the_parts_of_the_batch_that_forward_names() -> None:
    class Takes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 1)

        def forward(self, features: Tensor) -> dict[str, Tensor]:
            return {"sum": self.layer(features)}

    inputs = {"input": "out.sum", "target": "batch.sums"}
    loss = Loss([LossTerm(nn.MSELoss(), inputs=inputs)])
    assert fit(make_run(module_task(named=True), Takes(), parts={"loss": loss})).ok
