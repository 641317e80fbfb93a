"""Tests of what a model is made of and what it costs."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import epochal as ep
from engine.parts import Sums, adder, fit, make_run, weights
from epochal.engine.analysis import model_summary as anatomy
from epochal.engine.analysis.model_summary import ModelSummary, analyze, analyze_run
from epochal.engine.execute import execute
from epochal.engine.runner import Train
from epochal.errors import TaskError

ADDER_FLOPS = 2 * (3 * 8 + 8)


class Picky(nn.Module):
    """Takes two inputs, changes the first in place, and draws random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(4, 4), nn.Linear(2, 4)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        a.zero_()
        return self.wide(a) + self.narrow(b) + torch.rand(1)


def look_at(run: Any) -> ModelSummary:
    """Train to the end, and look at the model there."""
    found = []
    run.on("run_end", lambda run: found.append(analyze_run(run)))
    fit(run)
    return found[0]


def test_a_model_is_analyzed_in_one_call() -> None:
    found = ep.analyze(adder(), torch.zeros(1, 3))
    assert (found.model.parameters, found.flops) == (41, ADDER_FLOPS)
    assert found.memory_bytes == {"parameters": 164, "gradients": 164, "buffers": 0}
    assert found.latency.mean_seconds > 0
    assert found.latency.runs >= 2
    for text in ("Sequential", "41", "64 a sample, forward", "± ", "parameters 164 B", "Linear"):
        assert text in str(found)


def test_inputs_modes_and_generators_do_not_change() -> None:
    model, a = Picky(), torch.ones(1, 4)
    model.wide.eval()
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    assert analyze(model, a, b=torch.ones(1, 2)).flops == 2 * (16 + 8)
    assert torch.equal(torch.rand(1), expected)
    assert a.sum() == 4
    assert (model.training, model.wide.training, model.narrow.training) == (True, False, True)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_model_without_parameters_can_be_analyzed() -> None:
    found = analyze(nn.Flatten(), torch.zeros(1, 2, 2))
    assert (found.model.parameters, found.flops) == (0, 0)
    assert "memory" not in str(found)


def test_uninitialized_lazy_modules_are_refused() -> None:
    with pytest.raises(TaskError, match="lazy modules are not initialized"):
        analyze(nn.Sequential(nn.LazyLinear(3)), torch.zeros(1, 3))


def test_frozen_parameters_are_shown_and_have_no_gradients() -> None:
    model = adder()
    model[0].requires_grad_(False)
    found = analyze(model, torch.zeros(1, 3))
    assert "41, 32 of them frozen" in str(found)
    assert found.memory_bytes["gradients"] == 36


def test_a_model_that_breaks_the_counter_is_measured_without_flops(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(anatomy, "count_flops", _fail)
    with caplog.at_level(logging.WARNING):
        found = analyze(adder(), torch.zeros(1, 3))
    assert (found.flops, found.step_flops, found.model.parameters) == (None, None, 41)
    assert "FLOPs are not counted: torch's counter fails: no such operator" in caplog.text
    assert "not counted" in str(found)
    with pytest.raises(TaskError, match="register_flops: torch's counter fails"):
        make_run().register_flops()


def _fail(*_: object) -> None:
    raise TypeError("no such operator")


def test_a_run_adds_step_flops_and_optimizer_memory() -> None:
    model = adder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    found = look_at(make_run(model=model, for_="2st", parts={"optimizer": optimizer}))
    assert (found.flops, found.samples_per_step) == (ADDER_FLOPS, 4)
    assert found.step_flops == 3 * 4 * ADDER_FLOPS
    assert found.memory_bytes["optimizer"] == 164


def test_the_summary_can_be_converted_to_json() -> None:
    values = json.loads(json.dumps(look_at(make_run(for_="1st")).to_json()))
    assert (values["parameters"], values["flops"], values["kind"]) == (41, 64, "Sequential")
    assert set(values["latency"]) == {"mean_seconds", "std_seconds", "runs"}
    assert [one["name"] for one in values["layers"]] == ["0", "1", "2", "3"]
    assert values["layers"][0]["calls"] == 1


def test_registered_flops_are_in_every_checkpoint() -> None:
    run = make_run()
    assert run.register_flops() == ADDER_FLOPS
    assert run.caches == {"flops": ADDER_FLOPS}


def test_flops_can_be_counted_with_given_data() -> None:
    run = make_run(model=Picky())
    data = {"b": torch.ones(5, 2), "label": ["x"], "a": torch.ones(5, 4)}
    assert run.register_flops(data, keys=("a", "b")) == 2 * (16 + 8)
    assert data["a"].sum() == 20
    assert list(data) == ["b", "label", "a"]
    ordered = {"a": data["a"], "b": data["b"]}
    assert make_run(model=Picky()).register_flops(ordered) == 2 * (16 + 8)


def test_errors_of_the_model_are_raised() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        make_run().register_flops({"x": torch.ones(2, 5)})


def test_analysis_does_not_change_training() -> None:
    def train(*, looks: bool) -> Tensor:
        model = adder(dropout=0.5)
        run = make_run(Sums(shuffle=True), model, for_="3ep")
        if looks:
            run.on("run_start", lambda run: run.register_flops())
            run.on("step_end", analyze_run, every="4st")
        assert execute(run, Train(), raise_errors=True).ok
        return weights(model)

    assert torch.equal(train(looks=True), train(looks=False))


def test_a_task_may_change_its_batch() -> None:
    class Popping(Sums):
        def batch_forward(self, model: nn.Module, batch: list[Tensor]) -> dict[str, Tensor]:
            return {"sum": model(batch[0].mul_(2)), "target": batch.pop()}

    run = make_run(Popping())
    before = run.task.train_loader.dataset.tensors[0].clone()
    assert analyze_run(run).flops == ADDER_FLOPS
    assert torch.equal(run.task.train_loader.dataset.tensors[0], before)
