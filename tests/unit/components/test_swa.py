"""Tests of stochastic weight averaging."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

import epochal as ep
from epochal.checkpoint import load_weights
from epochal.checkpoint.weights import load_weights_from
from epochal.components.average import Swa
from epochal.engine.interfaces.average import UPDATES_KEY
from epochal.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))


def step(model: nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))
    model(torch.randn(4, 3))


def averaged(average: Swa, model: nn.Module) -> dict[str, Tensor]:
    with average.swapped():
        return {name: value.clone() for name, value in model.state_dict().items()}


def test_it_is_the_mean_of_weights_and_buffers() -> None:
    model, average = network(), Swa()
    average.start(model)
    history = []
    for _ in range(5):
        step(model)
        average.update()
        history.append({name: value.clone() for name, value in model.state_dict().items()})
    result = averaged(average, model)
    for name in ("0.weight", "0.bias", "1.weight", "1.running_mean", "1.running_var"):
        torch.testing.assert_close(result[name], torch.stack([h[name] for h in history]).mean(0))
    assert result["1.num_batches_tracked"] == 5


def test_the_mean_of_one_update_equals_the_weights() -> None:
    model, average = network(), Swa()
    average.start(model)
    step(model)
    average.update()
    own = {name: value.clone() for name, value in model.state_dict().items()}
    step(model)
    result = averaged(average, model)
    assert torch.equal(result["0.weight"], own["0.weight"])


def test_before_the_first_update_the_average_equals_the_model() -> None:
    model, average = network(), Swa()
    average.start(model)
    step(model)
    assert torch.equal(averaged(average, model)["0.weight"], model[0].weight)
    assert torch.equal(average.state_tensors()["0.weight"], model[0].weight)
    assert int(average.state_tensors()[UPDATES_KEY]) == 0


def test_its_state_is_its_tensors() -> None:
    model, average = network(), Swa()
    average.start(model)
    other, restored = network(), Swa()
    restored.start(other)
    for _ in range(3):
        step(model)
        average.update()
    other.load_state_dict(model.state_dict())
    for name, tensor in restored.state_tensors().items():
        tensor.copy_(average.state_tensors()[name])
    step(model)
    other.load_state_dict(model.state_dict())
    average.update()
    restored.update()
    for name, tensor in restored.state_tensors().items():
        assert torch.equal(tensor, average.state_tensors()[name])


def test_a_period_of_never_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"average.every: never updates the average"):
        Swa(every=0)  # type: ignore[arg-type]


def test_a_run_may_start_from_the_average_of_another_run(shop: Path) -> None:
    average = "average={type: swa, start: 1ep, every: 2st}"
    first = ep.run("config.yaml", overrides=[average, "train.for=2ep"], raise_errors=True)
    assert first.dir is not None
    folder = first.dir / "checkpoints"
    wanted, own = (load_weights(folder / f"{one}.safetensors") for one in ("final-ema", "final"))
    assert not torch.equal(wanted["linear.weight"], own["linear.weight"])
    for path in (first.dir, folder / "last"):
        tensors, _ = load_weights_from(path, try_ema="required")
        assert torch.equal(tensors["linear.weight"], wanted["linear.weight"])
