"""Runs on a real device that roll back after a nonfinite gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from epochal.components.average import Ema
from epochal.engine import Environment, Options, Parts, Task, Train
from epochal.engine.create_run import create_run
from epochal.engine.execute import execute
from epochal.engine.interfaces.options import (
    CheckpointOptions,
    EngineOptions,
    OptimOptions,
    TrainOptions,
)
from epochal.hooks.checkpointing import Checkpointing
from epochal.hooks.recording import Recording
from epochal.records import NullWriter
from epochal.records.folder.checkpoint_manifests import find_checkpoints

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


class Events(NullWriter):
    def __init__(self) -> None:
        self.kept: list[dict[str, Any]] = []

    def event(self, kind: str, **data: object) -> None:
        self.kept.append({"kind": kind, **data})

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [one for one in self.kept if one["kind"] == kind]


class Rows(Task):
    """Rows with one NaN."""

    def __init__(self, *, bad: int) -> None:
        x = torch.randn(240, 8, generator=torch.Generator().manual_seed(0))
        y = x.sum(1, keepdim=True)
        x[bad] = float("nan")
        self.train_loader = DataLoader(TensorDataset(x, y), batch_size=4, shuffle=True)

    def batch_forward(self, model: nn.Module, batch: list[Tensor]) -> Tensor:
        out: Tensor = model(batch[0])
        return out

    def batch_loss(self, out: Tensor, batch: list[Tensor]) -> dict[str, Any]:
        return {"loss": ((out - batch[1]).square().mean(), len(out))}


def train(
    folder: Path | None, *, every: object = "8st", action: str = "rollback", **engine: Any
) -> tuple[Any, Tensor, Events, dict[str, Any]]:
    torch.manual_seed(0)
    layers = [nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1)]
    model = nn.Sequential(*layers).cuda()
    rate = torch.tensor(0.01, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, capturable=True, fused=True)
    average, events = Ema(decay=0.9), Events()
    saving = Checkpointing(CheckpointOptions(every=every, keep_last=None))
    parts = Parts(
        task=Rows(bad=7),
        model=model,
        optimizer=optimizer,
        average=average,
        hooks=(Recording(every="5st"), saving),
    )
    options = Options(
        train=TrainOptions(for_="2ep"),
        engine=EngineOptions(deterministic=True, on_nonfinite=action, **engine),
        optim=OptimOptions(clip=1.0),
    )
    setting = Environment(device="cuda", writer=events, checkpoint_dir=folder)
    run = create_run(parts, options, setting)
    result = execute(run, Train(), raise_errors=True)
    ended = torch.cat([one.detach().flatten() for one in model.state_dict().values()])
    return result, ended, events, dict(run.choices)


@pytest.mark.parametrize("every", [0, "8st"])
def test_captured_steps_roll_back_like_eager_ones(tmp_path: Path, every: object) -> None:
    eager = train(tmp_path / "eager", every=every, step="eager")
    graph = train(tmp_path / "graph", every=every, step="graph")
    assert eager[0].status == graph[0].status == "finished"
    assert eager[0].steps == graph[0].steps
    assert graph[3]["step"] == "graph"
    assert torch.equal(eager[1], graph[1])
    assert eager[1].isfinite().all()
    for kind in ("nonfinite", "rollback"):
        events = [one | {"checkpoint": ""} for one in eager[2].of(kind)]
        assert events == [one | {"checkpoint": ""} for one in graph[2].of(kind)]
    assert len(eager[2].of("rollback")) == 2


@pytest.mark.parametrize("action", ["skip", "stop", "rollback"])
@pytest.mark.parametrize("step", ["eager", "graph"])
def test_reported_step_contains_the_bad_sample(tmp_path: Path, action: str, step: str) -> None:
    result, ended, events, _ = train(tmp_path, action=action, step=step)
    assert result.reason == ("diverged" if action == "stop" else "max_epochs")
    first = events.of("nonfinite")[0]
    assert 7 in first["samples"][0]
    assert ended.isfinite().all()
    assert all(manifest.step < first["step"] for manifest in find_checkpoints(tmp_path)[:1])


def test_rollback_from_memory_equals_rollback_from_files(tmp_path: Path) -> None:
    assert torch.equal(train(tmp_path)[1], train(None)[1])
