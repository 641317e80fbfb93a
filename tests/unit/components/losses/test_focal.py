from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from epochal.components.losses.focal import Focal
from epochal.errors import ConfigError, TaskError

torch.manual_seed(0)
LOGITS = torch.randn(6, 4)
LABELS = torch.tensor([0, 3, 1, 1, 2, 0])


def test_class_numbers_equal_the_closed_form() -> None:
    value, count = Focal(gamma=2.0)(LOGITS, LABELS)
    p = LOGITS.softmax(1)[torch.arange(6), LABELS]
    torch.testing.assert_close(value, (-((1 - p) ** 2) * p.log()).mean())
    assert count == 6


def test_without_gamma_it_is_cross_entropy() -> None:
    value, _ = Focal(gamma=0)(LOGITS, LABELS)
    torch.testing.assert_close(value, functional.cross_entropy(LOGITS, LABELS))


def test_class_probabilities_are_weighted() -> None:
    hot = functional.one_hot(LABELS, 4).float()
    torch.testing.assert_close(Focal()(LOGITS, hot)[0], Focal()(LOGITS, LABELS)[0])
    both = Focal()(LOGITS, 0.3 * hot + 0.7 * hot.roll(1, 0))[0]
    wanted = 0.3 * Focal()(LOGITS, LABELS)[0] + 0.7 * Focal()(LOGITS, LABELS.roll(1))[0]
    torch.testing.assert_close(both, wanted)


def test_sigmoid_treats_classes_as_independent() -> None:
    target = (torch.rand(6, 4) > 0.5).float()
    value, count = Focal(gamma=1.5, alpha=0.25, sigmoid=True)(LOGITS, target)
    p = LOGITS.sigmoid()
    right = torch.where(target == 1, p, 1 - p)
    share = torch.where(target == 1, 0.25, 0.75)
    torch.testing.assert_close(value, (-share * (1 - right) ** 1.5 * right.log()).mean())
    assert count == 6


def test_floats_of_another_shape_are_refused() -> None:
    with pytest.raises(TaskError, match="focal got an input of shape"):
        Focal()(LOGITS, torch.zeros(6))


def test_certain_predictions_have_a_finite_gradient() -> None:
    for gamma in (0.5, 2.0):
        logits = torch.tensor([[200.0, 0.0]], requires_grad=True)
        for target in (torch.tensor([0]), torch.tensor([[1.0, 0.0]])):
            logits.grad = None
            Focal(gamma=gamma, sigmoid=target.is_floating_point())(logits, target)[0].backward()
            assert logits.grad is not None, gamma
            assert torch.isfinite(logits.grad).all(), gamma


def test_alpha_needs_sigmoid() -> None:
    with pytest.raises(ConfigError, match=r"loss.alpha: weights positive and negative targets"):
        Focal(alpha=0.25)
