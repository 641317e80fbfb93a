"""Tests of whether the numbers of a task can be used."""

from __future__ import annotations

from typing import NoReturn

import pytest
import torch

from epochal.engine.outcome import Outcome, check_losses, check_metrics

LOSS = torch.tensor(2.0, requires_grad=True)


class RefusedError(Exception):
    """Stands in for the error that names task, epoch and batch."""


def fail(what: str, hint: str) -> NoReturn:
    raise RefusedError(f"{what} / {hint}")


def test_pairs_are_taken_as_they_are() -> None:
    count = torch.tensor(3)
    losses = check_losses({"loss": (LOSS, count), "aux": [0.5, 2]}, None, fail)
    assert losses == {"loss": (LOSS, count), "aux": (0.5, 2)}
    outcome = Outcome("batch", "out", losses)
    assert outcome.loss is LOSS
    assert outcome.count is count


def test_a_bare_tensor_gets_the_size_of_the_batch() -> None:
    batch = {"image": torch.zeros(5, 2)}
    assert check_losses({"loss": LOSS}, batch, fail)["loss"] == (LOSS, 5)
    assert check_losses(LOSS, batch, fail)["loss"] == (LOSS, 5)


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        (None, "returned None"),
        ({}, r"returned no 'loss', only \[\]"),
        ({"ce": (LOSS, 1)}, r"returned no 'loss', only \['ce'\]"),
        ({"loss": (1.5, 4)}, "'loss' is 1.5, not a tensor"),
        ({"loss": (torch.ones(2), 4)}, r"'loss' has a tensor of shape \(2,\), not one number"),
        ({"loss": (LOSS, 0)}, "'loss' has the count 0"),
        ({"loss": (LOSS, -2)}, "'loss' has the count -2"),
        ({"loss": (LOSS, 1, 2)}, "not \\(value, count\\)"),
        ({"loss": (LOSS, "four")}, "'loss' holds 'four'"),
        ({"loss": LOSS}, "'loss' has no count, and the batch shows no size"),
        ({"loss": (LOSS, 4), "aux": ("text", 4)}, "'aux' holds 'text'"),
    ],
)
def test_losses_that_cannot_be_used_are_refused(losses: object, message: str) -> None:
    with pytest.raises(RefusedError, match=message):
        check_losses(losses, "no tensor", fail)


def test_no_metrics_are_none() -> None:
    assert check_metrics(None, fail) == {}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (0.5, "returned 0.5"),
        ({"acc": 0.5}, r"'acc' is 0.5, not \(value, count\) / return {'acc': \(value, count\)}"),
        ({"acc": (torch.ones(3), 3)}, "shape"),
        ({"acc": (None, 3)}, "'acc' holds None"),
    ],
)
def test_metrics_that_cannot_be_used_are_refused(values: object, message: str) -> None:
    with pytest.raises(RefusedError, match=message):
        check_metrics(values, fail)
