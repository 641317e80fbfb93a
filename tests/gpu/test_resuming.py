"""Runs on a real device resume at every boundary with the same bits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from epochal.components.average import Ema
from epochal.engine import Environment, Monitor, Options, Parts, Run, Task
from epochal.engine.create_run import create_run
from epochal.engine.interfaces.options import EngineOptions, LogOptions, OptimOptions, TrainOptions
from epochal.hooks.recording import Recording
from resume import assert_resumes_everywhere

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


class Rows(Task):
    def __init__(self) -> None:
        x = torch.randn(26, 8, generator=torch.Generator().manual_seed(0))
        data = TensorDataset(x, x.sum(1, keepdim=True))
        self.train_loader = DataLoader(data, batch_size=4, shuffle=True, drop_last=True)
        self.val_loader = DataLoader(data, batch_size=8)

    def batch_forward(self, model: nn.Module, batch: list[Tensor]) -> Tensor:
        out: Tensor = model(batch[0])
        return out

    def batch_loss(self, out: Tensor, batch: list[Tensor]) -> dict[str, Any]:
        return {"loss": ((out - batch[1]).square().mean(), len(out))}

    def batch_metric(self, out: Tensor, batch: list[Tensor]) -> dict[str, Any]:
        return {"mae": ((out - batch[1]).abs().mean(), len(out))}


def build(setting: dict[str, Any], **engine: Any) -> Run:
    torch.manual_seed(0)
    layers = [nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1)]
    model = nn.Sequential(*layers).cuda()
    rate = torch.tensor(0.01, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, capturable=True, fused=True)
    parts = Parts(
        task=Rows(),
        model=model,
        optimizer=optimizer,
        average=Ema(decay=0.9),
        monitor=Monitor("val/mae"),
        hooks=(Recording(every="2st"),),
    )
    options = Options(
        train=TrainOptions(for_="3ep", eval_every="4st"),
        engine=EngineOptions(deterministic=True, **engine),
        optim=OptimOptions(clip=1.0),
        log=LogOptions(grad_norm=True),
    )
    return create_run(parts, options, Environment(device="cuda", **setting))


@pytest.mark.parametrize(
    "engine",
    [
        {"step": "eager"},
        {"step": "graph"},
        {"step": "auto", "on_nonfinite": "skip"},
        {"step": "eager", "precision": "fp16"},
    ],
)
def test_run_resumes_exactly_at_every_boundary(engine: Any) -> None:
    assert assert_resumes_everywhere(lambda setting: build(setting, **engine)) == 19
