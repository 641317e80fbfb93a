"""DDP and FSDP on a CUDA device with one process: they train as a run without them does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import distributed, nn

import epochal as ep
from epochal.checkpoint.weights import load_weights_from
from epochal.testing import TinyTask

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from torch import Tensor

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

FSDP = {"strategy": "fsdp", "fsdp_wrap": ["1", "3"]}


@pytest.fixture(autouse=True, scope="module")
def leaving_the_group() -> Iterator[None]:
    yield
    if distributed.is_initialized():
        distributed.destroy_process_group()


def train(folder: Path, **engine: Any) -> tuple[dict[str, Tensor], dict[str, float]]:
    torch.manual_seed(0)
    parts = [nn.Linear(4, 64), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.Linear(64, 3)]
    result = ep.Experiment(
        task=TinyTask(),
        model=nn.Sequential(*parts),
        optim={"type": "AdamW", "lr": 0.01, "clip": 0.1, "accumulate": 2},
        schedule={"type": "cosine"},
        average={"type": "ema", "decay": 0.8},
        engine=engine,
        train={"for": "8st", "eval_every": "3st"},
        log={"grad_norm": True, "tensorboard": False},
        record={"log_dir": str(folder)},
        choices={"device": "cuda", "raise_errors": True},
    ).fit()
    assert result.dir is not None
    weights, _ = load_weights_from((result.dir / "checkpoints" / "last").resolve())
    final, _ = load_weights_from(result.dir)
    assert all(weights[name].equal(one) for name, one in final.items())
    return weights, dict(result.metrics)


def test_one_process_trains_alike_with_each_strategy(tmp_path: Path) -> None:
    expected, metrics = train(tmp_path / "none", step="eager")
    for name, engine in {
        "ddp": {"strategy": "ddp"},
        "fsdp": FSDP,
        "guarded": {**FSDP, "on_nonfinite": "skip", "fsdp_reshard": False},
        "recomputed": {**FSDP, "recompute": ["1", "3"]},
        "offloaded": {**FSDP, "fsdp_offload": True},
    }.items():
        weights, others = train(tmp_path / name, **engine)
        for key, tensor in expected.items():
            torch.testing.assert_close(
                weights[key], tensor, atol=1e-5, rtol=1e-4, msg=lambda text, n=name: f"{n}: {text}"
            )
        means = {key: others[key] for key in metrics}  # a guard counts skipped steps, too
        assert means == pytest.approx(metrics, rel=1e-3, abs=1e-4), name


def test_half_precision_trains_roughly_alike(tmp_path: Path) -> None:
    expected, _ = train(tmp_path / "none", step="eager")
    for precision in ("bf16", "fp16"):
        weights, _ = train(tmp_path / precision, precision=precision, **FSDP)
        for key, tensor in expected.items():
            torch.testing.assert_close(weights[key], tensor, atol=0.05, rtol=0.05)
