"""Stages on a CUDA device: steps are captured again at every border and give the same bits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import epochal as ep

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

STAGES: list[dict[str, Any]] = [
    {"for": "10st", "freeze": ["0"]},
    {"for": "11st", "unfreeze": ["0"], "optim": {"lr": 0.02, "clip": 0.5}, "schedule": "linear"},
    {"for": "9st", "optim": {"type": "SGD", "lr": 0.05, "momentum": 0.9}, "batch_size": 16},
    {"for": "8st", "task": {"scale": 0.5}, "optim": {"accumulate": 2}},
]


class Sums(ep.Task):
    """Learn to add; stages may scale the loss."""

    def __init__(self) -> None:
        x = torch.randn(160, 8, generator=torch.Generator().manual_seed(0))
        data = TensorDataset(x, x.sum(1, keepdim=True))
        self.train_loader = DataLoader(data, batch_size=8, shuffle=True)
        self.scale = 1.0

    def on_stage_start(self, *, scale: float = 1.0) -> None:
        self.scale = scale

    def batch_forward(self, model: nn.Module, batch: list[Tensor]) -> Tensor:
        out: Tensor = model(batch[0])
        return out

    def batch_loss(self, out: Tensor, batch: list[Tensor]) -> dict[str, Any]:
        return {"loss": ((out - batch[1]).square().mean() * self.scale, len(out))}


class Kinds(ep.Hook):
    """Records the kind of step before each border, and stops at a step."""

    def __init__(self, stop_at: int = 0) -> None:
        self.kinds: list[object] = []
        self._stop_at = stop_at

    def stage_end(self, run: ep.Run, name: str) -> None:
        self.kinds.append(run.choices["step"])

    def step_end(self, run: ep.Run) -> None:
        if run.step == self._stop_at:
            run.stop("user_interrupt", status="interrupted")


def train(step: str, *, hook: Kinds | None = None, **choices: Any) -> tuple[Tensor, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    experiment = ep.Experiment(
        task=Sums(),
        model=model,
        optim={"type": "AdamW", "lr": 0.01},
        average={"type": "ema", "decay": 0.9},
        schedule={"type": "cosine", "warmup": 3},
        stages=STAGES,
        engine={"step": step, "deterministic": True},
        hooks=[] if hook is None else [hook],
        choices={"device": "cuda", "raise_errors": True, **choices},
    )
    result = experiment.fit()
    return torch.cat([one.detach().flatten().cpu() for one in model.parameters()]), result


def test_every_stage_is_captured_and_trains_the_bits_of_eager_steps() -> None:
    hook = Kinds()
    eager, _ = train("eager", no_file=True)
    graph, result = train("graph", hook=hook, no_file=True)
    assert result.steps == 38
    assert torch.equal(graph, eager)
    assert hook.kinds == ["graph"] * 4


@pytest.mark.parametrize("step", ["eager", "graph"])
@pytest.mark.parametrize("at", [3, 10, 14, 21, 27, 30, 35])
def test_staged_run_resumes_exactly(
    step: str, at: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    whole, _ = train(step, no_file=True)
    _, half = train(step, hook=Kinds(at), raise_errors=False)
    assert half.steps == at
    resumed, _ = train(step, resume=str(half.dir), allow_changed=True)
    assert torch.equal(resumed, whole)
