"""Tests of the reasons against capture that are known beforehand.

There is no CUDA device here, so runs are told that they have one after they were built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from engine.parts import Sums, adder, make_run
from epochal.engine import Hook, Member, Optimizers, Run, Updater
from epochal.engine.capture.obstacles import find_capture_obstacle

if TYPE_CHECKING:
    import pytest


def on_device(model: nn.Module | None = None, **options: Any) -> Run:
    model = adder() if model is None else model
    parts = options.pop("parts", {})
    rate = torch.tensor(0.1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, fused=True)
    optimizer.param_groups[0]["capturable"] = True
    run = make_run(Sums(), model, parts={"optimizer": optimizer, **parts}, **options)
    run.part(Updater).bind(run)
    run.device = torch.device("cuda")
    return run


def test_only_runs_on_cuda_can_be_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_capture_obstacle(on_device()) == ""
    assert find_capture_obstacle(make_run()) == "graphs need a CUDA device, and this one is cpu"
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    assert "CUDA_LAUNCH_BLOCKING is set" in find_capture_obstacle(on_device())


class Peeking(Hook):
    def batch_end(self, run: Run, split: str) -> None:
        pass


def test_a_hook_inside_training_steps_is_named() -> None:
    hook = Peeking()
    obstacle = find_capture_obstacle(on_device(hooks=(hook,)))
    assert obstacle.startswith("Peeking.batch_end acts inside")
    hook.on = ("val",)
    assert find_capture_obstacle(on_device(hooks=(hook,))) == ""


class Own(Updater):
    def apply(self, run: Run, total: Any = None) -> None:
        super().apply(run, total)


def test_a_user_updater_must_say_that_it_can_be_captured() -> None:
    assert "Own.apply is overridden" in find_capture_obstacle(on_device(parts={"updater": Own()}))
    own = Own()
    own.is_capturable = True
    assert find_capture_obstacle(on_device(parts={"updater": own})) == ""


def test_an_optimizer_that_cannot_be_captured_is_named() -> None:
    for options, what in [
        ({}, "SGD is not capturable"),
        ({"fused": True}, "the learning rate of SGD is a Python number"),
    ]:
        model = adder()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, **options)
        run = on_device(model, parts={"optimizer": optimizer})
        assert find_capture_obstacle(run).startswith(what)


def test_a_guard_that_reads_the_device_is_an_obstacle() -> None:
    model = adder()
    optimizer = torch.optim.NAdam(model.parameters(), lr=torch.tensor(0.1), capturable=False)
    optimizer.param_groups[0]["capturable"] = True
    run = on_device(model, parts={"optimizer": optimizer}, engine={"on_nonfinite": "skip"})
    assert "the non-finite guard" in find_capture_obstacle(run)


def test_a_forward_hook_of_the_user_is_named_and_one_of_torch_is_not() -> None:
    model = adder()
    nn.utils.parametrizations.spectral_norm(model[0])
    assert find_capture_obstacle(on_device(model)) == ""

    def look(module: nn.Module, inputs: object, output: object) -> None:
        pass

    model[3].register_forward_hook(look)
    obstacle = find_capture_obstacle(on_device(model))
    assert "look, a forward_hook of model.3, acts in it" in obstacle


def test_the_one_of_several_optimizers_that_is_not_capturable_is_named() -> None:
    model = adder()
    first, last = model[0].parameters(), model[3].parameters()  # type: ignore[index]  # a list of layers
    usual = torch.optim.AdamW(first, lr=torch.tensor(0.1), fused=True)
    usual.param_groups[0]["capturable"] = True
    members = [Member("usual", usual), Member("odd", torch.optim.RMSprop(last, lr=0.1))]
    run = on_device(model, parts={"optimizer": Optimizers(members)})
    assert find_capture_obstacle(run).startswith("RMSprop is not capturable")
    members = [Member("usual", usual)]
    assert find_capture_obstacle(on_device(model, parts={"optimizer": Optimizers(members)})) == ""


def test_dropout_between_recurrent_layers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "dropout between the layers of model.0 has its own generator in cuDNN"
    for layer, expected in [
        (nn.LSTM(3, 4, num_layers=2, dropout=0.2), reason),
        (nn.GRU(3, 4, num_layers=3, dropout=0.1), reason),
        (nn.LSTM(3, 4, num_layers=2), ""),
        (nn.Dropout(0.2), ""),
    ]:
        model = nn.Sequential(layer, nn.Linear(4, 1))
        assert find_capture_obstacle(on_device(model)) == expected, layer
    monkeypatch.setattr(torch.backends.cudnn, "enabled", False)
    assert find_capture_obstacle(on_device(nn.Sequential(nn.LSTM(3, 4, 2, dropout=0.2)))) == ""
