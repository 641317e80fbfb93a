from __future__ import annotations

import torch

from epochal.components.losses.kl import Kl

torch.manual_seed(0)
SCORES, TEACHER = torch.randn(5, 3), torch.randn(5, 3)


def test_it_equals_its_closed_form() -> None:
    wanted = TEACHER.softmax(1)
    divergence = (wanted * (wanted.log() - SCORES.log_softmax(1))).sum(1).mean()
    torch.testing.assert_close(Kl()(SCORES, wanted), divergence)
    torch.testing.assert_close(Kl(logits=True)(SCORES, TEACHER), divergence)


def test_a_temperature_preserves_the_size_of_gradients() -> None:
    wanted = (TEACHER / 4).softmax(1)
    divergence = (wanted * (wanted.log() - (SCORES / 4).log_softmax(1))).sum(1).mean() * 16
    torch.testing.assert_close(Kl(logits=True, temperature=4.0)(SCORES, TEACHER), divergence)
