"""Losses: values, counts and refused inputs."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.profiler import profile

from epochal.components.losses import (
    L1,
    Bce,
    Contrastive,
    CrossEntropy,
    Dice,
    Focal,
    Huber,
    Kl,
    Mse,
)
from epochal.errors import ConfigError, TaskError

torch.manual_seed(0)
SCORES, TARGET = torch.randn(5, 3), torch.randint(2, (5, 3))
A, B = torch.randn(4, 8), torch.randn(4, 8)
TEACHER = torch.randn(5, 3)
LOGITS = torch.randn(6, 4)
LABELS = torch.tensor([0, 3, 1, 1, 2, 0])


def test_bce_equals_its_closed_form_with_integer_targets_and_weights() -> None:
    p = SCORES.sigmoid()
    for pos_weight in (None, [1.0, 2.0, 3.0]):
        weight = torch.tensor(pos_weight or [1.0] * 3)
        wanted = -(weight * TARGET * p.log() + (1 - TARGET) * (1 - p).log()).mean()
        torch.testing.assert_close(Bce(pos_weight=pos_weight)(SCORES, TARGET), wanted)


def test_contrastive_equals_its_closed_form_in_both_directions() -> None:
    value, count = Contrastive(temperature=0.5)(A, B)
    a, b = A / A.norm(dim=1, keepdim=True), B / B.norm(dim=1, keepdim=True)
    scores = a @ b.T / 0.5
    forward = -(scores.diag() - scores.logsumexp(1)).mean()
    backward = -(scores.diag() - scores.logsumexp(0)).mean()
    torch.testing.assert_close(value, (forward + backward) / 2)
    assert count == 4


def test_a_learned_scale_replaces_the_temperature() -> None:
    scaled, _ = Contrastive()(A, B, torch.tensor(2.0))
    torch.testing.assert_close(scaled, Contrastive(temperature=0.5)(A, B)[0])


def test_matching_pairs_have_almost_no_contrastive_loss() -> None:
    value, _ = Contrastive(temperature=0.01)(torch.eye(4), torch.eye(4))
    assert value.item() == pytest.approx(0, abs=1e-6)


def test_dice_equals_its_closed_form_with_class_numbers() -> None:
    scores, target = torch.randn(2, 3, 4, 4), torch.randint(3, (2, 4, 4))
    p = scores.softmax(1)
    terms = []
    for sample in range(2):
        for one in range(3):
            mask, got = (target[sample] == one).float(), p[sample, one]
            terms.append(1 - (2 * (got * mask).sum() + 1) / (got.sum() + mask.sum() + 1))
    torch.testing.assert_close(Dice()(scores, target), torch.stack(terms).mean())


def test_dice_treats_the_classes_of_masks_as_independent() -> None:
    scores, target = torch.randn(2, 1, 4), (torch.rand(2, 1, 4) > 0.5).float()
    p = scores.sigmoid()
    wanted = 1 - (2 * (p * target).sum(2) + 1) / (p.sum(2) + target.sum(2) + 1)
    torch.testing.assert_close(Dice()(scores, target), wanted.mean())
    perfect = torch.tensor([[[1.0, 0.0, 1.0]]])
    assert Dice()((perfect * 2 - 1) * 1e4, perfect).item() == 0


def test_kl_equals_its_closed_form_with_probabilities_logits_and_a_temperature() -> None:
    for temperature in (1.0, 4.0):
        wanted = (TEACHER / temperature).softmax(1)
        logs = (SCORES / temperature).log_softmax(1)
        divergence = (wanted * (wanted.log() - logs)).sum(1).mean() * temperature**2
        torch.testing.assert_close(Kl(temperature=temperature)(SCORES, wanted), divergence)
        distilled = Kl(logits=True, temperature=temperature)(SCORES, TEACHER)
        torch.testing.assert_close(distilled, divergence)


def test_cross_entropy_equals_torchs_exactly() -> None:
    value, count = CrossEntropy()(LOGITS, LABELS)
    assert torch.equal(value, functional.cross_entropy(LOGITS, LABELS))
    assert count == 6


def test_label_smoothing_equals_its_closed_form() -> None:
    value, _ = CrossEntropy(label_smoothing=0.1)(LOGITS, LABELS)
    logs = LOGITS.log_softmax(1)
    right = logs.gather(1, LABELS.unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(value, -(0.9 * right + 0.1 * logs.mean(1)).mean())


def test_class_weights_equal_those_of_torch() -> None:
    weights = [1.0, 2.0, 0.5, 3.0]
    value, _ = CrossEntropy(class_weights=weights)(LOGITS, LABELS)
    wanted = functional.cross_entropy(LOGITS, LABELS, torch.tensor(weights))
    assert torch.equal(value, wanted)


def test_ignored_targets_do_not_count() -> None:
    for weights in (None, [1.0, 2.0, 0.5, 3.0]):
        for smoothing in (0.0, 0.1):
            labels = torch.tensor([0, -1, 1, -1, 2, 0])
            loss = CrossEntropy(class_weights=weights, label_smoothing=smoothing, ignore_index=-1)
            value, count = loss(LOGITS, labels)
            tensor = None if weights is None else torch.tensor(weights)
            wanted = functional.cross_entropy(
                LOGITS, labels, tensor, ignore_index=-1, label_smoothing=smoothing
            )
            torch.testing.assert_close(value, wanted)
            assert int(count) == 4, weights


def test_smoothing_with_weights_equals_torchs_without_waiting_for_the_device() -> None:
    weights, labels = torch.tensor([1.0, 2.0, 0.5, 3.0]), torch.tensor([0, -100, 1, 1, 2, 0])
    loss = CrossEntropy(class_weights=weights.tolist(), label_smoothing=0.1)
    with profile(acc_events=True) as seen:  # without it, torch 2.11 warns
        value, _ = loss(LOGITS, labels)
    assert "aten::masked_select" not in {event.name for event in seen.events()}
    wanted = functional.cross_entropy(LOGITS, labels, weights, label_smoothing=0.1)
    torch.testing.assert_close(value, wanted)


def test_microbatches_with_class_weights_add_up_to_the_batch() -> None:
    for ignored in (None, 2):
        loss = CrossEntropy(class_weights=[1.0, 2.0, 0.5, 3.0], ignore_index=ignored)
        whole, weight = loss(LOGITS, LABELS)
        parts = [loss(LOGITS[rows], LABELS[rows]) for rows in (slice(0, 1), slice(1, 6))]
        torch.testing.assert_close(sum(value * count for value, count in parts) / weight, whole)


def test_a_batch_of_ignored_targets_has_no_loss_and_no_gradient() -> None:
    logits = LOGITS.clone().requires_grad_()
    value, count = CrossEntropy(ignore_index=-1)(logits, torch.full((6,), -1))
    value.backward()
    assert (value.item(), int(count)) == (0.0, 0)
    assert logits.grad is not None
    assert not logits.grad.any()


def test_targets_may_be_probabilities() -> None:
    soft = torch.rand(6, 4).softmax(1)
    value, count = CrossEntropy()(LOGITS, soft)
    assert torch.equal(value, functional.cross_entropy(LOGITS, soft))
    assert count == 6


def test_each_element_of_dense_targets_counts() -> None:
    logits, labels = torch.randn(2, 3, 5, 5), torch.randint(3, (2, 5, 5))
    value, count = CrossEntropy()(logits, labels)
    assert torch.equal(value, functional.cross_entropy(logits, labels))
    assert count == 50


def test_focal_equals_its_closed_form_with_class_numbers() -> None:
    value, count = Focal(gamma=2.0)(LOGITS, LABELS)
    p = LOGITS.softmax(1)[torch.arange(6), LABELS]
    torch.testing.assert_close(value, (-((1 - p) ** 2) * p.log()).mean())
    assert count == 6


def test_focal_without_gamma_is_cross_entropy() -> None:
    value, _ = Focal(gamma=0)(LOGITS, LABELS)
    torch.testing.assert_close(value, functional.cross_entropy(LOGITS, LABELS))


def test_focal_weights_class_probabilities() -> None:
    hot = functional.one_hot(LABELS, 4).float()
    torch.testing.assert_close(Focal()(LOGITS, hot)[0], Focal()(LOGITS, LABELS)[0])
    both = Focal()(LOGITS, 0.3 * hot + 0.7 * hot.roll(1, 0))[0]
    wanted = 0.3 * Focal()(LOGITS, LABELS)[0] + 0.7 * Focal()(LOGITS, LABELS.roll(1))[0]
    torch.testing.assert_close(both, wanted)


def test_focal_with_sigmoid_treats_classes_as_independent() -> None:
    target = (torch.rand(6, 4) > 0.5).float()
    value, count = Focal(gamma=1.5, alpha=0.25, sigmoid=True)(LOGITS, target)
    p = LOGITS.sigmoid()
    right = torch.where(target == 1, p, 1 - p)
    share = torch.where(target == 1, 0.25, 0.75)
    torch.testing.assert_close(value, (-share * (1 - right) ** 1.5 * right.log()).mean())
    assert count == 6


def test_focal_refuses_floats_of_another_shape() -> None:
    with pytest.raises(TaskError, match="focal got an input of shape"):
        Focal()(LOGITS, torch.zeros(6))


def test_focal_has_a_finite_gradient_for_certain_predictions() -> None:
    for gamma in (0.5, 2.0):
        logits = torch.tensor([[200.0, 0.0]], requires_grad=True)
        for target in (torch.tensor([0]), torch.tensor([[1.0, 0.0]])):
            logits.grad = None
            Focal(gamma=gamma, sigmoid=target.is_floating_point())(logits, target)[0].backward()
            assert logits.grad is not None, gamma
            assert torch.isfinite(logits.grad).all(), gamma


def test_focal_alpha_needs_sigmoid() -> None:
    with pytest.raises(ConfigError, match=r"loss.alpha: weights positive and negative targets"):
        Focal(alpha=0.25)


def test_regression_losses_equal_torchs_exactly() -> None:
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
        message = rf"{name} got an input of shape \(4, 8\) and a target of shape \(4,\)\n"
        with pytest.raises(TaskError, match=message):
            loss(A, B[:, 0])
