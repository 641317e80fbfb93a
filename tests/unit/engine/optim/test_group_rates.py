"""Tests of rates as floats, and as tensors where groups want tensors."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from epochal.engine.optim.rate import GroupRates, read_rate, read_rates


def optimizer_of(*rates: object) -> torch.optim.Optimizer:
    groups = [{"params": [nn.Parameter(torch.zeros(1))], "lr": rate} for rate in rates]
    return torch.optim.SGD(groups)


def test_without_an_optimizer_there_are_no_rates() -> None:
    assert read_rates(None) == {}
    assert GroupRates().values == []


def test_rates_are_named_by_group_if_there_are_several() -> None:
    assert read_rates(optimizer_of(0.5)) == {"lr": 0.5}
    optimizer = optimizer_of(0.5, 0.25)
    optimizer.param_groups[1]["name"] = "head"
    assert read_rates(optimizer) == {"lr/0": 0.5, "lr/head": 0.25}


def test_a_tensor_with_a_known_rate_is_not_read() -> None:
    optimizer = optimizer_of(torch.tensor(0.5), 0.25)
    assert read_rates(optimizer, [0.125, 0.0]) == {"lr/0": 0.125, "lr/1": 0.25}


def test_a_narrow_tensor_is_read_as_the_shortest_decimal() -> None:
    for rate in (1e-3, 3e-4, 0.1, 1.0, 2.5e-5, 0.12345678):
        assert read_rate(torch.tensor(rate)) == pytest.approx(rate, rel=1e-7)
        assert read_rate(torch.tensor(rate)) == rate or len(repr(rate)) >= 8
        assert read_rate(torch.tensor(rate, dtype=torch.float64)) == rate


def test_a_rate_is_set_in_the_tensor_of_a_group_if_it_has_one() -> None:
    tensor = torch.tensor(0.5)
    optimizer = optimizer_of(tensor, 0.25)
    rates = GroupRates(optimizer)
    rates.set_rate(0, 0.125)
    rates.set_rate(1, 0.0625)
    assert rates.values == [0.125, 0.0625]
    assert optimizer.param_groups[0]["lr"] is tensor
    assert tensor == 0.125
    assert optimizer.param_groups[1]["lr"] == 0.0625


def test_adopt_reads_groups_that_were_added() -> None:
    optimizer = optimizer_of(0.5)
    rates = GroupRates(optimizer)
    optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))], "lr": 0.25})
    rates.adopt()
    assert rates.values == [0.5, 0.25]


def test_tensors_are_put_back_if_a_scheduler_fails() -> None:
    tensor = torch.tensor(0.5)
    optimizer = optimizer_of(tensor)
    rates = GroupRates(optimizer)

    def fail() -> None:
        assert optimizer.param_groups[0]["lr"] == 0.5
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        rates.step_scheduler(fail)
    assert optimizer.param_groups[0]["lr"] is tensor


def test_loaded_rates_use_the_tensors_of_the_groups() -> None:
    layer = nn.Linear(2, 2)
    groups = [{"params": [layer.weight]}, {"params": [layer.bias], "lr": 0.5}]
    optimizer = torch.optim.SGD(groups, lr=torch.tensor(0.1))
    rates = GroupRates(optimizer)
    optimizer.param_groups[0]["lr"].fill_(0.3)
    optimizer.param_groups[1]["lr"] = 0.7
    rates.load([0.3, 0.7])
    rates.adopt()
    assert rates.values == [0.3, 0.7]
