from __future__ import annotations

from typing import Any

import pytest
import torch

from engine.parts import Sums, adder, fit, make_run, weights
from epochal.engine.step.updater import GradientNoise
from epochal.errors import ConfigError


def test_its_variance_fades_by_the_closed_formula() -> None:
    torch.manual_seed(0)
    noise = GradientNoise(eta=0.5, decay=0.55, count=torch.zeros(()))
    for count in range(5):
        gradient = torch.full((20_000,), 3.0)
        noise.add_to([gradient])
        assert gradient.mean().item() == pytest.approx(3, abs=0.03)
        assert gradient.var().item() == pytest.approx(0.5 / (1 + count) ** 0.55, rel=0.05)
    assert noise.count == 5


def test_training_is_that_of_a_loop_written_by_hand() -> None:
    batches: list[Any] = []

    class Noting(Sums):
        def pre_batch_forward(self, batch: Any) -> Any:
            batches.append(batch)
            return batch

    model, other = adder(), adder()
    options = {"optim": {"noise": 0.1, "clip": 0.5}, "for_": "6st", "sanity_batches": 0}
    run = make_run(Noting(40), model, eval_every=0, **options)
    states: list[torch.Tensor] = []
    run.on("run_start", lambda run: states.append(torch.get_rng_state()))
    fit(run)
    torch.set_rng_state(states[0])
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    for count, (x, y) in enumerate(batches):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(other(x), y).backward()
        torch.nn.utils.clip_grad_norm_(other.parameters(), 0.5)
        sigma = 0.1**0.5 * (1 + torch.tensor(float(count))) ** (-0.55 / 2)
        noise = [torch.randn_like(one) for one in other.parameters()]
        for parameter, one in zip(other.parameters(), noise, strict=True):
            assert parameter.grad is not None
            parameter.grad += one * sigma
        optimizer.step()
    assert torch.equal(weights(model), weights(other))


def test_without_it_gradients_are_left_alone() -> None:
    run = make_run(for_="1st")
    updater = run.updater
    fit(run)
    assert updater.noise is None
    assert updater.state_tensors() == {}


@pytest.mark.parametrize(("key", "value"), [("noise", 0), ("noise", -1), ("noise_decay", -1)])
def test_numbers_that_make_no_sense_are_refused(key: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"optim.{key}: must be"):
        make_run(optim={key: value})


def test_an_optimizer_that_searches_along_the_gradient_is_refused() -> None:
    model = adder()
    optimizer = torch.optim.LBFGS(model.parameters())
    run = make_run(model=model, parts={"optimizer": optimizer}, optim={"noise": 0.1})
    with pytest.raises(ConfigError, match=r"optim.noise: LBFGS searches along the gradient"):
        fit(run)
