"""Groups and several optimizers on a CUDA device: captured steps have the same bits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

import epochal as ep

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


class Gan(nn.Module):
    """A generator of points and a critic."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 4))
        self.critic = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))


class Faking(ep.Task):
    def __init__(self) -> None:
        points = torch.randn(320, 4, generator=torch.Generator().manual_seed(5))
        self.train_loader = DataLoader(points, batch_size=8)  # type: ignore[arg-type]  # a tensor is read like a dataset

    def batch_forward(self, model: Gan, batch: Tensor) -> tuple[Tensor, Tensor]:
        fake = model.generator(torch.randn_like(batch))
        generator = functional.softplus(-model.critic(fake)).mean()
        critic = functional.softplus(model.critic(fake.detach())).mean()
        return generator, critic + functional.softplus(-model.critic(batch)).mean()

    def batch_loss(self, out: tuple[Tensor, Tensor], batch: Tensor) -> dict[str, Any]:
        count = len(batch)
        total = out[0] + out[1]
        return {"g_loss": (out[0], count), "d_loss": (out[1], count), "loss": (total, count)}


class Witness(ep.Hook):
    def run_end(self, run: ep.Run) -> None:
        self.choices = dict(run.choices)
        self.weights = {k: v.detach().clone() for k, v in run.model.state_dict().items()}


def train(
    step: str, optim: dict[str, Any], *, stages: list[dict[str, Any]] | None = None, **engine: Any
) -> Witness:
    witness = Witness()
    result = ep.Experiment(
        task=Faking(),
        model=Gan(),
        optim=optim,
        schedule={"type": "cosine"},
        **({"train": {"for": "3ep"}} if stages is None else {"stages": stages}),
        engine={"step": step, "deterministic": True, **engine},
        hooks=[witness],
        choices={"device": "cuda", "no_file": True},
    ).fit()
    assert result.ok, result.traceback
    return witness


GROUPS: dict[str, Any] = {
    "type": "AdamW",
    "lr": 0.01,
    "weight_decay": 0.1,
    "no_decay": "auto",
    "groups": [{"match": "critic", "lr_mult": 0.5, "betas": [0.8, 0.9]}],
}
SEVERAL: dict[str, Any] = {
    "generator": {"type": "Adam", "lr": 0.01, "match": "generator", "loss": "g_loss", "every": 3},
    "critic": {"type": "SGD", "lr": 0.05, "momentum": 0.9, "loss": "d_loss", "clip": 0.5},
}


@pytest.mark.parametrize("optim", [GROUPS, SEVERAL], ids=["groups", "several"])
@pytest.mark.parametrize("engine", [{}, {"on_nonfinite": "skip"}], ids=["plain", "guarded"])
def test_captured_steps_train_the_same(optim: dict[str, Any], engine: dict[str, Any]) -> None:
    eager, captured = train("eager", optim, **engine), train("graph", optim, **engine)
    assert captured.choices["step"] == "graph", captured.choices
    for name, weight in eager.weights.items():
        assert torch.equal(weight, captured.weights[name]), name


def test_stages_that_change_one_of_several_optimizers_are_captured_again() -> None:
    stages: list[dict[str, Any]] = [
        {"for": "1ep"},
        {"for": "1ep", "optim": {"generator": {"lr": 0.002, "every": 1}}},
        {"for": "1ep", "optim": {"critic": {"type": "AdamW", "lr": 0.01}}},
    ]
    eager, captured = (train(step, SEVERAL, stages=stages) for step in ("eager", "graph"))
    assert captured.choices["step"] == "graph", captured.choices
    for name, weight in eager.weights.items():
        assert torch.equal(weight, captured.weights[name]), name


def test_each_group_has_its_own_rate_tensor() -> None:
    rates: list[Any] = []

    class Look(ep.Hook):
        def run_start(self, run: ep.Run) -> None:
            assert run.optimizer is not None
            rates.extend(group["lr"] for group in run.optimizer.param_groups)

    ep.Experiment(
        task=Faking(),
        model=Gan(),
        optim=GROUPS,
        train={"for": "1st"},
        hooks=[Look()],
        choices={"device": "cuda", "no_file": True, "raise_errors": True},
    ).fit()
    assert len(rates) == 4
    assert all(isinstance(rate, Tensor) and rate.is_cuda for rate in rates)
    assert len({rate.data_ptr() for rate in rates}) == 4
