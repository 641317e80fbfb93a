"""Accelerate on a GPU: the weights of its own loop, in low precision up to rounding."""

from __future__ import annotations

import copy

import pytest
import torch

from accelerated import OwnSteps, make_model, train_here, train_there

pytest.importorskip("accelerate")
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("precision", ["no", "bf16", "fp16"])
def test_weights_equal_those_of_accelerate_on_a_gpu(precision: str) -> None:
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    accelerator = Accelerator(mixed_precision=precision, gradient_accumulation_steps=2)
    theirs = make_model()
    ours, own_steps = copy.deepcopy(theirs), copy.deepcopy(theirs)
    accuracy = train_there(accelerator, theirs)
    result = train_here(accelerator, own_steps, runner=OwnSteps())
    assert result.metrics["val/acc"] == pytest.approx(accuracy)
    train_here(accelerator, ours)
    # In low precision the loss is rounded at another place: Accelerate converts outputs first.
    close = {"rtol": 0.0, "atol": 0.0 if precision == "no" else 0.02}
    for model in (ours, own_steps):
        for one, other in zip(theirs.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(other.to(one.device), one, **close)
