from __future__ import annotations

import torch

from epochal.components.losses.bce import Bce

torch.manual_seed(0)
LOGITS, TARGET = torch.randn(5, 3), torch.randint(2, (5, 3))


def test_it_equals_its_closed_form_with_integer_targets() -> None:
    p = LOGITS.sigmoid()
    wanted = -(TARGET * p.log() + (1 - TARGET) * (1 - p).log()).mean()
    torch.testing.assert_close(Bce()(LOGITS, TARGET), wanted)


def test_positive_targets_may_have_a_weight() -> None:
    p, weight = LOGITS.sigmoid(), torch.tensor([1.0, 2.0, 3.0])
    wanted = -(weight * TARGET * p.log() + (1 - TARGET) * (1 - p).log()).mean()
    torch.testing.assert_close(Bce(pos_weight=[1.0, 2.0, 3.0])(LOGITS, TARGET), wanted)
