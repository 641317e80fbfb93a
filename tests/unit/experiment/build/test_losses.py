"""Tests of losses that a config describes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import epochal as ep
from epochal.engine.loss.loss import Loss
from epochal.errors import ConfigError
from small_project import write

if TYPE_CHECKING:
    from pathlib import Path

OWN = '''
    """A task that leaves its loss to the config, and losses."""

    from torch import Tensor, nn
    from torch.nn import functional

    from shop.parts import Points


    class Bare(Points):
        batch_loss = None


    class Asking(Points):
        def batch_loss(self, out, batch, loss_fn):
            return loss_fn(out, batch)


    def scaled(logits: Tensor, label: Tensor, *, scale: float = 1.0) -> Tensor:
        return functional.cross_entropy(logits, label) * scale


    class Counting(nn.Module):
        """Has a buffer."""

        def __init__(self, *, start: float = 1.0) -> None:
            super().__init__()
            import torch
            self.register_buffer("factor", torch.tensor(start))

        def forward(self, logits: Tensor) -> Tensor:
            return logits.square().mean() * self.factor


    class Learning(nn.Module):
        """Has a parameter: how sure the labels are."""

        def __init__(self) -> None:
            super().__init__()
            import torch
            self.log_scale = nn.Parameter(torch.zeros(()))

        def forward(self, logits: Tensor, label: Tensor) -> Tensor:
            loss = functional.cross_entropy(logits, label)
            return loss * (-self.log_scale).exp() + self.log_scale
'''
CE = "{type: cross_entropy, inputs: {input: out.logits, target: batch.label}}"
BARE = "task={type: shop.own.Bare}"


@pytest.fixture
def own(shop: Path) -> Path:
    write(shop / "shop" / "own.py", OWN)
    return shop


class Look(ep.Hook):
    def run_start(self, run: ep.Run) -> None:
        self.loss = run.loss


def run(*overrides: str, runner: str | None = None, **sections: Any) -> tuple[ep.RunResult, Any]:
    look = Look()
    choices = {"no_file": True, "device": "cpu", "fast": True}
    experiment = ep.Experiment(
        "config.yaml", overrides=overrides, choices=choices, hooks=[look], **sections
    )
    return experiment.run(runner), look


def test_with_a_section_no_batch_loss_is_needed_and_the_run_is_the_same(own: Path) -> None:
    with_method, _ = run()
    without, _ = run(BARE, f"loss={CE}")
    assert with_method.ok, with_method.traceback
    assert without.metrics["train/epoch/loss"] == with_method.metrics["train/epoch/loss"]
    assert without.metrics["val/acc"] == with_method.metrics["val/acc"]


def test_several_terms_are_logged_by_name(own: Path) -> None:
    for loss in (
        f"[{{name: ce, {CE[1:]}, {{type: shop.own.Counting, weight: 0.5, name: size}}]",
        f"{{ce: {CE}, size: {{type: shop.own.Counting, weight: 0.5}}}}",
    ):
        result, look = run(BARE, f"loss={loss}")
        assert result.ok, result.traceback
        metrics = result.metrics
        total = metrics["train/epoch/ce"] + 0.5 * metrics["train/epoch/size"]
        assert metrics["train/epoch/loss"] == pytest.approx(total, rel=1e-6)
        assert look.loss.weights == {"ce": 1.0, "size": 0.5}


def test_functions_are_fed_by_the_names_of_their_arguments(own: Path) -> None:
    result, _ = run(BARE, "loss={type: shop.own.scaled, scale: 2.0}")
    plain, _ = run(BARE, "loss=shop.own.scaled")
    assert result.ok, result.traceback
    assert result.metrics["train/epoch/loss"] != plain.metrics["train/epoch/loss"]


def test_torchs_losses_work_by_name(own: Path) -> None:
    inputs = "inputs: {input: out.logits, target: batch.label}"
    torchs, _ = run(BARE, f"loss={{type: CrossEntropyLoss, label_smoothing: 0.1, {inputs}}}")
    ours, _ = run(BARE, f"loss={{type: cross_entropy, label_smoothing: 0.1, {inputs}}}")
    assert torchs.ok, torchs.traceback
    assert torchs.metrics["train/epoch/loss"] == ours.metrics["train/epoch/loss"]


def test_a_task_that_asks_for_it_receives_the_loss(own: Path) -> None:
    asking, _ = run("task={type: shop.own.Asking}", f"loss={CE}")
    bare, _ = run(BARE, f"loss={CE}")
    assert asking.ok, asking.traceback
    assert asking.metrics["train/epoch/loss"] == bare.metrics["train/epoch/loss"]


def test_inference_builds_no_loss_unless_it_is_asked_for(own: Path) -> None:
    _, look = run(BARE, f"loss={CE}", runner="test")
    assert look.loss is None
    result, look = run(BARE, f"loss={CE}", "train.eval_loss=true", runner="test")
    assert isinstance(look.loss, Loss)
    assert "test/loss" in result.metrics


def test_buffers_go_to_the_device_and_into_the_precision_of_the_model(own: Path) -> None:
    _, look = run(BARE, "loss={type: shop.own.Counting}", "model.dtype=float64")
    assert look.loss.terms["loss"].factor.dtype == torch.float64


def test_python_may_give_a_module_or_a_function(own: Path) -> None:
    def own_loss(logits: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(logits, label)

    class Wrapped(nn.Module):
        def forward(self, logits: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
            return own_loss(logits, label)

    wanted, _ = run(BARE, f"loss={CE}")
    for loss in (own_loss, Wrapped()):
        result, _ = run(BARE, loss=loss)
        assert result.ok, result.traceback
        assert result.metrics["train/epoch/loss"] == wanted.metrics["train/epoch/loss"]


def test_unknown_inputs_of_a_loss_end_the_run_with_the_known_ones(own: Path) -> None:
    with pytest.raises(ConfigError, match="cannot tell which part is 'input2'") as caught:
        run(BARE, "loss={type: MarginRankingLoss}")
    assert "out has logits; batch has x, label" in str(caught.value)
    assert "input2: out.logits, target: batch.label}" in str(caught.value)


class Final(ep.Hook):
    """Notes what the loss has learned."""

    def run_end(self, run: ep.Run) -> None:
        assert run.loss is not None
        self.value = float(run.loss.terms["loss"].log_scale.detach())
        assert run.optimizer is not None
        groups = run.optimizer.param_groups
        self.names = [group.get("name") for group in groups]
        self.rates = [float(group["lr"]) for group in groups]


def learned(*overrides: str, **sections: Any) -> tuple[ep.RunResult, Final]:
    final, choices = Final(), {"no_file": True, "device": "cpu"}
    loss = "loss={type: shop.own.Learning}"
    experiment = ep.Experiment(
        "config.yaml",
        overrides=(BARE, loss, *overrides),
        choices=choices,
        hooks=[final],
        **sections,
    )
    return experiment.run(), final


def test_parameters_of_a_loss_are_trained(own: Path) -> None:
    result, final = learned()
    assert result.ok, result.traceback
    assert final.value != 0


def test_rules_of_groups_match_parameters_of_a_loss(own: Path) -> None:
    rule = "optim.groups=[{match: 'loss.*', lr: 0.5, name: scale}]"
    result, final = learned(rule)
    assert result.ok, result.traceback
    assert "scale" in final.names
    assert 0.5 in final.rates


def test_an_optimizer_without_the_parameters_of_the_loss_is_refused(own: Path) -> None:
    model = nn.Linear(4, 3)
    with pytest.raises(ConfigError, match="log_scale: is a parameter that no optimizer trains"):
        learned(model=model, optim=torch.optim.SGD(model.parameters(), lr=0.1))


def test_parameters_of_a_loss_are_resumed(own: Path) -> None:
    overrides = [BARE, "loss={type: shop.own.Learning}"]
    whole = ep.run("config.yaml", overrides=[*overrides, "train.for=3ep"], raise_errors=True)
    first = ep.run("config.yaml", overrides=[*overrides, "train.for=1ep"], raise_errors=True)
    assert first.dir is not None
    longer = ep.resume(first.dir, overrides=["train.for=3ep"], raise_errors=True)
    assert longer.metrics == whole.metrics


def test_model_data_and_loss_are_a_whole_experiment(own: Path) -> None:
    inputs = {"input": "out.outputs", "target": "batch.label"}
    sections = {
        "model": {"type": "shop.parts.Net"},
        "data": {"train": {"type": "shop.parts.Rows", "batch_size": 4}},
        "loss": {"type": "cross_entropy", "inputs": inputs},
        "optim": {"type": "SGD", "lr": 0.1},
        "train": {"for": "2ep"},
    }
    result = ep.Experiment(sections, choices={"no_file": True}).fit()
    assert result.ok, result.traceback
    assert result.metrics["train/epoch/loss"] > 0


def test_a_given_loss_must_be_callable(own: Path) -> None:
    message = "loss: cannot be called: it is an object of type 'object'"
    with pytest.raises(ep.ConfigError, match=message):
        run(BARE, loss=object())
    with pytest.raises(ep.ConfigError, match=r"is the class 'MSELoss'(.|\n)*loss=MSELoss\(...\)"):
        run(BARE, loss=nn.MSELoss)
