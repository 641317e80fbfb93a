"""Tests of the losses that torch does not have, against their closed forms."""

from __future__ import annotations

import pytest
import torch

from epochal.components.losses.bce import Bce
from epochal.components.losses.contrastive import Contrastive
from epochal.components.losses.dice import Dice
from epochal.components.losses.kl import Kl

torch.manual_seed(0)
LOGITS, TARGET = torch.randn(5, 3), torch.randint(2, (5, 3))
A, B = torch.randn(4, 8), torch.randn(4, 8)
TEACHER = torch.randn(5, 3)


def test_bce_equals_its_closed_form_with_integer_targets_and_weights() -> None:
    p = LOGITS.sigmoid()
    for pos_weight in (None, [1.0, 2.0, 3.0]):
        weight = torch.tensor(pos_weight or [1.0] * 3)
        wanted = -(weight * TARGET * p.log() + (1 - TARGET) * (1 - p).log()).mean()
        torch.testing.assert_close(Bce(pos_weight=pos_weight)(LOGITS, TARGET), wanted)


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
        logs = (LOGITS / temperature).log_softmax(1)
        divergence = (wanted * (wanted.log() - logs)).sum(1).mean() * temperature**2
        torch.testing.assert_close(Kl(temperature=temperature)(LOGITS, wanted), divergence)
        distilled = Kl(logits=True, temperature=temperature)(LOGITS, TEACHER)
        torch.testing.assert_close(distilled, divergence)
