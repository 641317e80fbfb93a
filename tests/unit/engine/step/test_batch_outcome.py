"""Tests of whether the numbers of a task can be used."""

from __future__ import annotations

import sys
from collections import OrderedDict
from typing import TYPE_CHECKING, NoReturn

import numpy
import pytest
import torch
from torch import nn

from epochal.engine.interfaces.outcome import Outcome
from epochal.engine.step.task_calls import check_losses, check_metrics

if TYPE_CHECKING:
    from types import FrameType

LOSS = torch.tensor(2.0, requires_grad=True)


class RefusedError(Exception):
    """Stands in for the error that names task, epoch and batch."""


def fail(what: str, hint: str) -> NoReturn:
    raise RefusedError(f"{what} / {hint}")


def test_pairs_are_used_as_they_are() -> None:
    count = torch.tensor(3)
    losses = check_losses({"loss": (LOSS, count), "aux": [0.5, 2]}, None, fail)
    assert losses == {"loss": (LOSS, count), "aux": (0.5, 2)}
    outcome = Outcome("batch", "out", losses)
    assert outcome.loss is LOSS
    assert outcome.count is count


def test_a_bare_tensor_gets_the_batch_size() -> None:
    batch = {"image": torch.zeros(5, 2)}
    assert check_losses({"loss": LOSS}, batch, fail)["loss"] == (LOSS, 5)
    assert check_losses(LOSS, batch, fail)["loss"] == (LOSS, 5)


def test_slice_of_a_batch_may_have_no_items() -> None:
    losses = {"loss": (LOSS, 0), "aux": (0.0, 0)}
    assert check_losses(losses, None, fail, may_be_empty=True) == losses
    with pytest.raises(RefusedError, match="'loss' has the count -2"):
        check_losses({"loss": (LOSS, -2)}, None, fail, may_be_empty=True)


def test_unusable_losses_are_refused() -> None:
    table = [
        (None, "returned None"),
        ({}, r"returned no 'loss', only \[\]"),
        ({"ce": (LOSS, 1)}, r"returned no 'loss', only \['ce'\]"),
        ({"loss": (1.5, 4)}, "'loss' is 1.5, not a tensor"),
        ({"loss": (torch.ones(2), 4)}, r"'loss' has a tensor of shape \(2,\), not one number"),
        ({"loss": (LOSS, 0)}, "'loss' has the count 0"),
        ({"loss": (LOSS, -2)}, "'loss' has the count -2"),
        ({"loss": (LOSS, 1, 2)}, "not \\(value, count\\)"),
        ({"loss": (LOSS, "four")}, "'loss' holds 'four'"),
        ({"loss": LOSS}, "'loss' has no count, and the batch has no known size"),
        ({"loss": (LOSS, 4), "aux": ("text", 4)}, "'aux' holds 'text'"),
        *(({"loss": (LOSS, 4), "aux": (LOSS, one)}, "'aux'") for one in (torch.ones(2), -1, None)),
    ]
    for losses, message in table:
        with pytest.raises(RefusedError, match=message):
            check_losses(losses, "no tensor", fail)


def test_unusable_metrics_are_refused_and_none_is_no_metrics() -> None:
    assert check_metrics(None, fail) == {}
    table = [
        (0.5, "returned 0.5"),
        ({"acc": 0.5}, r"'acc' is 0.5, not \(value, count\) / return {'acc': \(value, count\)}"),
        ({"acc": torch.ones(3)}, r"'acc' is a tensor of shape \(3,\), not \(value, count\)"),
        ({"acc": (torch.ones(3), 3)}, "shape"),
        ({"acc": (None, 3)}, "'acc' holds None"),
    ]
    for values, message in table:
        with pytest.raises(RefusedError, match=message):
            check_metrics(values, fail)


def test_the_usual_values_are_checked_without_further_calls() -> None:
    usual = {"loss": (LOSS, 4), "aux": (torch.tensor([1.0]), torch.tensor(3))}
    metrics = {"acc": (torch.tensor(1.0), 4)}
    calls: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            calls.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        losses = check_losses(usual, None, fail)
        checked = check_metrics(metrics, fail)
    finally:
        sys.setprofile(None)
    assert calls == ["check_losses", "check_metrics"]
    assert losses is usual
    assert checked == metrics


def test_less_usual_structures_are_accepted() -> None:
    table: list[dict[str, object]] = [
        {"loss": (LOSS, True)},
        {"loss": (LOSS, 2.5)},
        {"loss": (LOSS, numpy.int64(4))},
        {"loss": (nn.Parameter(torch.ones(1)), 4), "aux": (1.0, 2)},
        OrderedDict(loss=(LOSS, 4)),
    ]
    for losses in table:
        assert check_losses(losses, None, fail) == dict(losses)
