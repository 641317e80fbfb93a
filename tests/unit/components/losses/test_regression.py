from __future__ import annotations

import pytest
import torch
from torch import nn

from epochal.components.losses.regression import L1, Huber, Mse
from epochal.errors import TaskError

torch.manual_seed(0)
A, B = torch.randn(5, 2), torch.randn(5, 2)


def test_they_equal_torchs_exactly() -> None:
    assert torch.equal(Mse()(A, B), nn.MSELoss()(A, B))
    assert torch.equal(L1()(A, B), nn.L1Loss()(A, B))
    assert torch.equal(Huber(delta=0.3)(A, B), nn.HuberLoss(delta=0.3)(A, B))


def test_huber_equals_its_closed_form() -> None:
    gap = (A - B).abs()
    wanted = torch.where(gap < 0.5, gap.square() / 2, 0.5 * (gap - 0.25)).mean()
    torch.testing.assert_close(Huber(delta=0.5)(A, B), wanted)


def test_a_target_of_another_shape_is_refused() -> None:
    for loss in (Mse(), L1(), Huber()):
        name = type(loss).__name__.lower()
        message = rf"{name} got an input of shape \(5, 2\) and a target of shape \(5,\)\n"
        with pytest.raises(TaskError, match=message):
            loss(A, B[:, 0])
