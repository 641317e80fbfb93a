"""Tests of the interface of the owner of the learning rate."""

from __future__ import annotations

import pytest
import torch

from epochal.engine.optim.build_rate import FixedRate
from epochal.engine.optim.rate import Rate


def test_the_interface_itself_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Rate()


def test_most_moments_move_nothing_unless_an_owner_says_so() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    rate = FixedRate(optimizer)
    rate.after_step(1)
    rate.after_epoch(1)
    rate.after_eval(1)
    rate.after_value(0.5, 1)
    assert rate.values == [0.1]
    assert not rate.is_moved_by_steps


def test_a_checkpoint_keeps_the_rates_beside_what_an_owner_knows() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    rate = FixedRate(optimizer)
    state = rate.state_dict()
    optimizer.param_groups[0]["lr"] = 0.3
    rate.adopt()
    assert rate.values == [0.3]
    rate.load_state_dict(state)
    assert (state, rate.values) == ({"values": [0.1], "own": {}}, [0.1])
