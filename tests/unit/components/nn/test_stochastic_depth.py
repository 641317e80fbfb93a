from __future__ import annotations

import pytest
import torch

import epochal as ep
from epochal.components.nn.stochastic_depth import StochasticDepth
from epochal.errors import ConfigError


def test_whole_samples_are_dropped_and_the_mean_is_preserved() -> None:
    torch.manual_seed(0)
    x = torch.ones(10_000, 2, 3)
    out = StochasticDepth(0.2)(x)
    kept = out[:, 0, 0] != 0
    torch.testing.assert_close(out[kept], torch.full_like(out[kept], 1.25))
    assert not out[~kept].any()
    assert kept.float().mean().item() == pytest.approx(0.8, abs=0.02)


def test_a_whole_batch_may_be_dropped() -> None:
    torch.manual_seed(0)
    drop = StochasticDepth(0.5, per_sample=False)
    values = {float(drop(torch.ones(8, 1)).sum()) for _ in range(50)}
    assert values == {0.0, 16.0}


def test_evaluation_and_a_probability_of_zero_change_nothing() -> None:
    for drop in (StochasticDepth(0.5).eval(), StochasticDepth(0.0)):
        x = torch.randn(4, 3)
        assert drop(x) is x


def test_dropped_samples_have_no_gradient() -> None:
    torch.manual_seed(0)
    x = torch.ones(100, 1, requires_grad=True)
    out = StochasticDepth(0.5)(x)
    out.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad == 0, out == 0)


def test_a_probability_out_of_bounds_is_refused() -> None:
    for p in (-0.1, 1.0):
        with pytest.raises(ConfigError, match=r"StochasticDepth.p: must be at least 0 and below 1"):
            StochasticDepth(p)


def test_models_use_it_as_ep_nn() -> None:
    assert ep.nn.StochasticDepth is StochasticDepth
    assert repr(ep.nn.StochasticDepth(0.3)) == "StochasticDepth(p=0.3)"
