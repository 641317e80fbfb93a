"""The examples on a real device end at the same loss with eager, captured and compiled steps."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import epochal as ep

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = {"digits": "digits/digits.yaml", "charlm": "charlm/charlm.yaml"}


def run(name: str, step: str, *, deterministic: bool) -> ep.RunResult:
    pytest.importorskip("sklearn")
    result = ep.run(
        EXAMPLES / FILES[name],
        overrides=[f"engine.step={step}", f"engine.deterministic={str(deterministic).lower()}"],
        device="cuda",
        no_file=True,
    )
    assert result.ok, result.traceback
    return result


@pytest.mark.parametrize("name", FILES)
def test_captured_runs_end_with_the_bits_of_eager_ones(name: str) -> None:
    eager = run(name, "eager", deterministic=True)
    captured = run(name, "graph", deterministic=True)
    assert captured.metrics == eager.metrics
    assert captured.best == eager.best


@pytest.mark.filterwarnings("ignore")  # torch's compiler warns
@pytest.mark.parametrize("name", FILES)
def test_compiled_runs_end_close_to_eager_ones(name: str) -> None:
    eager = run(name, "eager", deterministic=False)
    compiled = run(name, "compile", deterministic=False)
    loss = next(key for key in eager.metrics if key in ("train/epoch/loss", "train/interval/loss"))
    assert compiled.metrics[loss] == pytest.approx(eager.metrics[loss], rel=0.02)
