"""Tests of the exponential moving average."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from epochal.components.average import Ema
from epochal.engine.interfaces.average import UPDATES_KEY
from epochal.errors import ConfigError


def tensors(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def averaged(average: Ema, model: nn.Module) -> dict[str, Tensor]:
    with average.swapped():
        return tensors(model)


def step(model: nn.Module) -> None:
    """Change the weights and buffers of the model."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))
    model(torch.randn(4, 3))


def network(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(dtype)


def test_the_average_equals_its_closed_form() -> None:
    model, average, decay = network(), Ema(decay=0.8), 0.8
    average.start(model)
    history = [tensors(model)]
    for _ in range(5):
        step(model)
        average.update()
        history.append(tensors(model))
    result = averaged(average, model)
    for name in ("0.weight", "0.bias", "1.weight", "1.running_mean", "1.running_var"):
        expected = decay**5 * history[0][name]
        for index in range(1, 6):
            expected += (1 - decay) * decay ** (5 - index) * history[index][name]
        torch.testing.assert_close(result[name], expected)


def test_integer_buffers_are_those_of_the_model() -> None:
    model, average = network(), Ema()
    average.start(model)
    step(model)
    average.update()
    assert averaged(average, model)["1.num_batches_tracked"] == 1


def test_the_model_gets_its_weights_back() -> None:
    model, average = network(), Ema()
    average.start(model)
    step(model)
    average.update()
    own, copies = tensors(model), {k: v.clone() for k, v in average.state_tensors().items()}
    with pytest.raises(KeyError), average.swapped():
        raise KeyError
    assert all(torch.equal(value, own[name]) for name, value in model.state_dict().items())
    assert all(torch.equal(v, copies[name]) for name, v in average.state_tensors().items())


def test_an_update_is_the_same_with_and_without_a_mask() -> None:
    for dtype in (torch.float32, torch.float64):
        results = []
        for mask in (None, torch.zeros(())):
            model, average = network(dtype), Ema(decay=0.9)
            average.start(model)
            torch.manual_seed(1)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(torch.randn_like(parameter))
            average.update(mask)
            results.append(averaged(average, model))
        assert all(torch.equal(value, results[1][name]) for name, value in results[0].items()), (
            dtype
        )


def test_a_skipped_update_changes_nothing_even_with_nan_in_buffers() -> None:
    model, average = network(), Ema(decay=0.5)
    average.start(model)
    step(model)
    average.update(torch.zeros(()))
    before = {name: value.clone() for name, value in average.state_tensors().items()}
    model(torch.full((4, 3), float("nan")))
    assert model[1].running_mean.isnan().all()
    average.update(torch.ones(()))
    assert all(torch.equal(value, before[name]) for name, value in average.state_tensors().items())


def test_its_tensors_keep_their_memory() -> None:
    model, average = network(), Ema()
    average.start(model)
    places = [value.data_ptr() for value in average.state_tensors().values()]
    step(model)
    average.update()
    average.update(torch.zeros(()))
    averaged(average, model)
    assert [value.data_ptr() for value in average.state_tensors().values()] == places


def test_tied_weights_are_copied_once() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    average = Ema()
    average.start(model)
    assert sorted(average.state_tensors()) == ["0.bias", "0.weight", "1.bias"]


def test_a_model_without_weights_has_nothing_to_average() -> None:
    average = Ema()
    average.start(nn.Tanh())
    average.update()
    assert average.state_tensors() == {}


def test_a_decay_out_of_bounds_is_refused() -> None:
    for decay in (1.0, -0.1, float("nan")):
        message = (
            r"average.decay: must be at least 0 and below 1, got .*\n  write for example 0.999"
        )
        with pytest.raises(ConfigError, match=message):
            Ema(decay=decay)


def test_new_weights_start_their_average() -> None:
    model, average = network(), Ema(decay=0.5)
    average.start(model)
    step(model)
    average.update()
    before = {name: value.clone() for name, value in average.state_tensors().items()}
    model.append(nn.Linear(4, 2))
    model[0] = nn.Linear(3, 4)
    average.admit(model)
    now = average.state_tensors()
    assert torch.equal(now["2.weight"], model[2].weight)
    assert torch.equal(now["0.weight"], model[0].weight)
    assert torch.equal(now["1.weight"], before["1.weight"])
    step(model)
    average.update()
    assert not torch.equal(now["0.weight"], before["0.weight"])


def test_removed_weights_are_dropped() -> None:
    model, average = network(), Ema()
    average.start(model)
    del model[1]
    average.admit(model)
    assert sorted(average.state_tensors()) == ["0.bias", "0.weight"]


def test_averages_keep_their_memory_if_nothing_is_new() -> None:
    model, average = network(), Ema()
    average.start(model)
    before = average.state_tensors()
    average.admit(model)
    assert all(value is before[name] for name, value in average.state_tensors().items())


def test_a_warmup_of_the_decay_equals_its_closed_form() -> None:
    model, average = network(), Ema(decay=0.5, warmup=True)
    average.start(model)
    expected = tensors(model)["0.weight"]
    for count in range(12):
        step(model)
        average.update()
        decay = min(0.5, (1 + count) / (10 + count))
        expected = decay * expected + (1 - decay) * tensors(model)["0.weight"]
    torch.testing.assert_close(averaged(average, model)["0.weight"], expected)
    assert average.state_tensors()[UPDATES_KEY] == 12


def test_a_skipped_update_does_not_warm_up() -> None:
    model, average = network(), Ema(decay=0.5, warmup=True)
    average.start(model)
    before = {name: one.clone() for name, one in average.state_tensors().items()}
    step(model)
    average.update(torch.ones(()))
    assert all(torch.equal(one, before[name]) for name, one in average.state_tensors().items())
    average.update(torch.zeros(()))
    other, reference = network(), Ema(decay=0.5, warmup=True)
    reference.start(other)
    other.load_state_dict(model.state_dict())
    reference.update()
    for name, one in reference.state_tensors().items():
        torch.testing.assert_close(one, average.state_tensors()[name])


def test_a_period_of_never_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"average.every: never updates the average"):
        Ema(every=0)  # type: ignore[arg-type]
