from __future__ import annotations

import torch

from epochal.components.losses.dice import Dice

torch.manual_seed(0)


def test_class_numbers_equal_the_closed_form() -> None:
    scores, target = torch.randn(2, 3, 4, 4), torch.randint(3, (2, 4, 4))
    p = scores.softmax(1)
    terms = []
    for sample in range(2):
        for one in range(3):
            mask = (target[sample] == one).float()
            got = p[sample, one]
            terms.append(1 - (2 * (got * mask).sum() + 1) / (got.sum() + mask.sum() + 1))
    torch.testing.assert_close(Dice()(scores, target), torch.stack(terms).mean())


def test_masks_treat_classes_as_independent() -> None:
    scores, target = torch.randn(2, 1, 4), (torch.rand(2, 1, 4) > 0.5).float()
    p = scores.sigmoid()
    wanted = 1 - (2 * (p * target).sum(2) + 1) / (p.sum(2) + target.sum(2) + 1)
    torch.testing.assert_close(Dice()(scores, target), wanted.mean())


def test_a_perfect_prediction_has_no_loss() -> None:
    target = torch.tensor([[[1.0, 0.0, 1.0]]])
    assert Dice()((target * 2 - 1) * 1e4, target).item() == 0
