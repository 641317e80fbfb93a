"""Tests of what is known about the parameters of a model."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from engine.parts import Sums, adder, fit, make_run, weights
from epochal.engine import Test
from epochal.engine.execute import execute
from epochal.engine.optim.select_parameters import (
    ParameterCount,
    count_parameters,
    has_uninitialized,
    require_parameters,
)
from epochal.errors import TaskError


def lazy() -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.Linear(8, 1))


def test_tied_parameters_are_counted_once() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight
    assert count_parameters(model) == ParameterCount(4, 4, is_complete=True)
    model[0].weight.requires_grad_(False)
    assert count_parameters(model) == ParameterCount(4, 0, is_complete=True)


def test_only_known_sizes_of_a_lazy_model_count() -> None:
    assert count_parameters(lazy()) == ParameterCount(9, 9, is_complete=False)
    assert not has_uninitialized(adder())


@pytest.mark.parametrize("sanity_batches", [0, 2])
def test_a_lazy_model_trains_and_its_sizes_are_known_before_the_run_starts(
    sanity_batches: int,
) -> None:
    model, seen = lazy(), []
    run = make_run(Sums(), model, for_="2ep", sanity_batches=sanity_batches)
    run.on("run_start", lambda run: seen.append(count_parameters(run.model)))
    fit(run)
    assert seen == [ParameterCount(57, 57, is_complete=True)]


def test_the_first_weights_of_a_lazy_model_depend_on_the_seed_alone() -> None:
    one, other = lazy(), lazy()
    fit(make_run(Sums(), one, for_="1st", sanity_batches=0))
    torch.manual_seed(123)
    fit(make_run(Sums(), other, for_="1st", sanity_batches=2))
    assert torch.equal(weights(one)[:24], weights(other)[:24])


def test_a_lazy_model_can_be_tested() -> None:
    result = execute(make_run(Sums(), lazy()), Test(), raise_errors=True)
    assert set(result.metrics) == {"test/mae"}


def test_an_optimizer_of_another_model_is_refused() -> None:
    with pytest.raises(TaskError, match=r"optim: SGD holds none of the parameters .*Sequential\n"):
        fit(make_run(parts={"optimizer": torch.optim.SGD(adder().parameters(), lr=0.1)}))


def test_an_optimizer_that_misses_parameters_is_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = adder()
    require_parameters(torch.optim.SGD(model[0].parameters(), lr=0.1), model)
    assert "SGD misses 2 of the 4 trainable parameters of the model, such as 3.weight" in (
        caplog.text
    )


def test_frozen_parameters_and_those_of_a_loss_are_no_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model, loss = adder(), nn.Linear(1, 1)
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD([*model[3].parameters(), *loss.parameters()], lr=0.1)
    require_parameters(optimizer, model)
    require_parameters(optimizer, nn.Identity())
    assert caplog.text == ""
