"""Tests of activations that are computed twice instead of being kept."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

from engine.parts import Sums, fit, make_run, weights
from epochal.engine.execute import describe_plan
from epochal.engine.runner import Train
from epochal.engine.step.recompute import find_modules
from epochal.errors import ConfigError
from resume import assert_resumes_everywhere

if TYPE_CHECKING:
    from epochal.engine import Run


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8)
        self.dropout = nn.Dropout(0.3)

    def forward(self, features: Tensor, *, scale: float = 1.0) -> Tensor:
        if not torch.compiler.is_compiling():
            Counter.calls += 1
        return features + scale * self.dropout(torch.tanh(self.norm(self.linear(features))))


class Counter:
    calls = 0


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 8)
        self.layers = nn.ModuleList([Block(), Block()])
        self.last = nn.Linear(8, 1)

    def forward(self, features: Tensor) -> Tensor:
        hidden = self.first(features)
        for layer in self.layers:
            hidden = layer(hidden, scale=0.5)
        return self.last(hidden)


def tower() -> nn.Module:
    torch.manual_seed(7)
    return Tower()


def trained(patterns: list[str], **engine: Any) -> nn.Module:
    model = tower()
    fit(make_run(Sums(), model, for_="3ep", engine={"recompute": patterns, **engine}))
    return model


def test_training_is_bitwise_equal_with_dropout_and_batch_norm() -> None:
    plain, recomputed = trained([]), trained(["layers.*"])
    assert torch.equal(weights(plain), weights(recomputed))
    buffers = zip(plain.buffers(), recomputed.buffers(), strict=True)
    assert all(torch.equal(one, other) for one, other in buffers)


def test_the_modules_are_computed_twice() -> None:
    Counter.calls = 0
    trained([])
    plain, Counter.calls = Counter.calls, 0
    trained(["layers"])
    steps, layers = 15, 2
    assert Counter.calls == plain + steps * layers


def test_training_is_bitwise_equal_with_accumulation_and_bf16() -> None:
    models = []
    for patterns in ([], ["layers.*"]):
        model = tower()
        engine = {"recompute": patterns, "precision": "bf16"}
        fit(make_run(Sums(), model, for_="2ep", engine=engine, optim={"accumulate": 2}))
        models.append(weights(model))
    assert torch.equal(*models)


def test_a_resumed_run_is_bitwise_equal() -> None:
    def build(settings: dict[str, Any]) -> Run:
        engine = {"recompute": ["layers.*"]}
        return make_run(Sums(8), tower(), for_="2ep", engine=engine, setting=settings)

    assert assert_resumes_everywhere(build)


def test_patterns_match_the_outermost_modules_but_no_module_lists() -> None:
    model = tower()
    assert [*find_modules(model, ["layers.*"], "key")] == ["layers.0", "layers.1"]
    assert [*find_modules(model, ["layers"], "key")] == ["layers.0", "layers.1"]
    assert [*find_modules(model, ["*.linear", "layers.1"], "key")] == [
        "layers.0.linear",
        "layers.1",
    ]
    assert find_modules(model, [], "key") == {}


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("layres.*", "did you mean 'layers.1' or 'layers.0'"),
        ("zzz", "modules are, for example, first, layers.0"),
    ],
)
def test_a_pattern_without_a_match_is_an_error_with_names(pattern: str, hint: str) -> None:
    run = make_run(Sums(), tower(), engine={"recompute": [pattern]})
    with pytest.raises(ConfigError, match=rf"engine\.recompute: no module is named(.|\n)*{hint}"):
        describe_plan(run, Train())


def test_forward_is_restored_after_the_run() -> None:
    model = trained(["layers.*"])
    assert not any("forward" in vars(module) for module in model.modules())
    own = tower()
    own.layers[0].forward = kept = own.layers[1].forward
    fit(make_run(Sums(), own, for_="1ep", engine={"recompute": ["layers.*"]}))
    assert own.layers[0].forward == kept


def test_a_copy_made_during_the_run_works() -> None:
    copies: list[nn.Module] = []
    run = make_run(Sums(), tower(), for_="1ep", engine={"recompute": ["layers.*"]})
    run.on("step_end", lambda run: copies.append(copy.deepcopy(run.model)))
    model = run.model
    fit(run)
    features = torch.ones(4, 3)
    with torch.no_grad():
        assert torch.equal(copies[-1].eval()(features), model.eval()(features))


def test_compiled_steps_recompute_too() -> None:
    engine = {"step": "compile", "compile_backend": "aot_eager"}
    plain, recomputed = trained([], **engine), trained(["layers.*"], **engine)
    torch.testing.assert_close(weights(plain), weights(recomputed), rtol=1e-4, atol=1e-5)
