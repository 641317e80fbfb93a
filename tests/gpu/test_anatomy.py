"""The model summary on a CUDA device; skipped without one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import epochal as ep
from epochal.engine.analysis.model_summary import analyze_run
from epochal.testing import TinyModel, TinyTask

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def train(model: nn.Module, *hooks: object, every: object = 0) -> ep.RunResult:
    return ep.Experiment(
        task=TinyTask(),
        model=model,
        optim={"type": "AdamW"},
        train={"for": "20st", "eval_every": 0},
        engine={"empty_cache_every": every},
        hooks=list(hooks),
        choices={"device": "cuda", "no_file": True, "raise_errors": True},
    ).fit()


def weights(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (nn.LSTM(4, 8, batch_first=True), (1, 5, 4)),
        (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (1, 5, 16)),
        (nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)), (1, 1, 8, 8)),
    ],
)
def test_flops_are_the_same_on_both_devices(model: nn.Module, shape: tuple[int, ...]) -> None:
    on_host = ep.analyze(model, torch.zeros(shape)).flops
    found = ep.analyze(model.to("cuda"), torch.zeros(shape, device="cuda"))
    assert found.flops == on_host
    assert found.uncounted == ()
    assert 0 < found.latency.mean_seconds < 1


def test_model_summary_and_emptied_cache_do_not_change_captured_steps() -> None:
    looked_at, plain = TinyModel(), TinyModel()
    plain.load_state_dict(looked_at.state_dict())
    looks: list[object] = []

    def look(run: ep.Run) -> None:
        run.on("step_end", lambda run: looks.append(analyze_run(run)), every="9st")

    train(looked_at, look, every="4st")
    train(plain)
    assert len(looks) == 2
    for one, other in zip(weights(looked_at), weights(plain), strict=True):
        assert torch.equal(one, other)
