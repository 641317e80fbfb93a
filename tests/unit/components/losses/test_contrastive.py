from __future__ import annotations

import pytest
import torch

from epochal.components.losses.contrastive import Contrastive

torch.manual_seed(0)
A, B = torch.randn(4, 8), torch.randn(4, 8)


def test_it_equals_its_closed_form_in_both_directions() -> None:
    value, count = Contrastive(temperature=0.5)(A, B)
    a, b = A / A.norm(dim=1, keepdim=True), B / B.norm(dim=1, keepdim=True)
    scores = a @ b.T / 0.5
    there = -(scores.diag() - scores.logsumexp(1)).mean()
    back = -(scores.diag() - scores.logsumexp(0)).mean()
    torch.testing.assert_close(value, (there + back) / 2)
    assert count == 4


def test_a_learned_scale_replaces_the_temperature() -> None:
    scaled, _ = Contrastive()(A, B, torch.tensor(2.0))
    torch.testing.assert_close(scaled, Contrastive(temperature=0.5)(A, B)[0])


def test_matching_pairs_have_almost_no_loss() -> None:
    value, _ = Contrastive(temperature=0.01)(torch.eye(4), torch.eye(4))
    assert value.item() == pytest.approx(0, abs=1e-6)
