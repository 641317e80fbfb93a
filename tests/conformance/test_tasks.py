"""The built-in tasks pass the conformance suite for users' tasks."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

from epochal.engine.interfaces.task import ModuleTask
from epochal.testing import TaskConformance, TinyModel, TinyTask


class TestTinyTask(TaskConformance):
    def make_task(self) -> TinyTask:
        return TinyTask()

    def make_model(self) -> TinyModel:
        torch.manual_seed(0)
        return TinyModel()


class SelfContained(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 1)

    def forward(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        out = self.linear(x).squeeze(1)
        return {"out": out, "loss": functional.mse_loss(out, y)}


class TestModuleTask(TaskConformance):
    def make_task(self) -> ModuleTask:
        task = ModuleTask()
        x = torch.arange(16.0).reshape(8, 2) / 16
        samples = [{"x": row, "y": row.sum()} for row in x]
        task.train_loader = task.val_loader = DataLoader(samples, batch_size=2)
        return task

    def make_model(self) -> SelfContained:
        torch.manual_seed(0)
        return SelfContained()
