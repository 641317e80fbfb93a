"""Hints below errors of torch that the first batch of new code often raises."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy, embedding

from epochal.engine.step.torch_errors import explain_torch_error
from epochal.testing import TinyTask, execute_run, tiny_run

SCORES = torch.zeros(4, 3)
CALLS: dict[str, tuple[Any, str]] = {
    "floats as labels": (
        lambda: cross_entropy(SCORES, torch.zeros(4)),
        "the labels are float, but class numbers are int64: use labels.long(), ",
    ),
    "labels of 32 bits": (
        lambda: cross_entropy(SCORES, torch.zeros(4, dtype=torch.int32)),
        "the labels are int, but ",
    ),
    "a class too many": (
        lambda: cross_entropy(SCORES, torch.tensor([0, 1, 2, 3])),
        "a label is 3: it must be at least 0 and less than the number of scores; ",
    ),
    "a column of labels": (
        lambda: cross_entropy(SCORES, torch.zeros(4, 1, dtype=torch.int64)),
        "class numbers have the shape (batch,): use labels.squeeze(1); ",
    ),
    "an unknown token": (
        lambda: embedding(torch.tensor([9]), SCORES),
        "an embedding got a number that is negative or not less than its num_embeddings",
    ),
}


def test_errors_that_new_code_often_raises_get_a_hint() -> None:
    for name, (call, hint) in CALLS.items():
        with pytest.raises((RuntimeError, IndexError)) as caught:
            call()
        explain_torch_error(caught.value)
        assert caught.value.__notes__[0].startswith(hint), name


def test_other_errors_get_no_hint() -> None:
    for error in (RuntimeError("no such thing"), ValueError("index out of range in self")):
        explain_torch_error(error)
        assert not hasattr(error, "__notes__")


def test_a_task_that_calls_backward_itself_is_told_so() -> None:
    class Eager(TinyTask):
        def batch_loss(self, out: Any, batch: Any) -> Any:
            losses = super().batch_loss(out, batch)
            losses["loss"][0].backward()
            return losses

    with pytest.raises(RuntimeError, match="backward through the graph") as caught:
        execute_run(tiny_run(task=Eager()))
    (note,) = caught.value.__notes__
    assert "return the loss without loss.backward()" in note
