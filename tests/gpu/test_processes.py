"""A process group of one process on a GPU: NCCL, and the same training as without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

import epochal as ep
from epochal.testing import TinyModel, TinyTask

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def train(folder: Path, strategy: str) -> tuple[dict[str, Any], dict[str, float]]:
    torch.manual_seed(0)
    model = TinyModel(dropout=0.0)
    result = ep.Experiment(
        task=TinyTask(batch_size=7),
        model=model,
        optim={"type": "AdamW", "lr": 0.01, "clip": 0.1, "accumulate": 2},
        average={"type": "ema", "decay": 0.9},
        engine={"strategy": strategy, "step": "eager", "on_nonfinite": "skip"},
        train={"for": "3ep"},
        record={"log_dir": str(folder)},
        choices={"device": "cuda"},
    ).fit()
    return model.state_dict(), dict(result.metrics)


def test_process_group_of_one_trains_as_without_it(tmp_path: Path) -> None:
    try:
        weights, metrics = train(tmp_path / "ddp", "ddp")
        assert "nccl" in torch.distributed.get_backend()
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
    expected, means = train(tmp_path / "none", "none")
    for name, tensor in expected.items():
        torch.testing.assert_close(weights[name], tensor)
    assert metrics == pytest.approx(means, rel=1e-5)
