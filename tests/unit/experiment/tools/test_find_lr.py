"""Tests of the search for a learning rate."""

from __future__ import annotations

import logging
import math
import random
from typing import TYPE_CHECKING, Any

import pytest
import torch

import epochal as ep
from epochal.experiment.tools.find_lr import (
    DIVERGENCE_FACTOR,
    DivergenceStop,
    smooth_losses,
    suggest_lr,
)
from epochal.testing import TinyModel, TinyTask
from small_project import tree

if TYPE_CHECKING:
    from pathlib import Path


QUIET: dict[str, Any] = {"device": "cpu"}


def parts() -> dict[str, Any]:
    torch.manual_seed(5)
    model = TinyModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return {"task": TinyTask(num_samples=64), "model": model, "optim": optimizer}


def experiment(**sections: Any) -> ep.Experiment:
    given = parts() | {
        "schedule": {"type": "cosine", "warmup": 2},
        "train": {"for": "2ep", "eval_every": 0},
        "log": {"console_every": 0},
    }
    choices = {"device": "cpu", "no_file": True, "raise_errors": True}
    return ep.Experiment(**(given | sections), choices=choices)


def test_rates_grow_exponentially(shop: Path) -> None:
    found = ep.find_lr("config.yaml", min_lr=1e-6, max_lr=1.0, steps=30, **QUIET)
    assert found.lrs[0] == pytest.approx(1e-6)
    assert len(found.lrs) == len(found.losses) == len(found.smoothed)
    ratios = [later / earlier for earlier, later in zip(found.lrs, found.lrs[1:], strict=False)]
    assert ratios == pytest.approx([10 ** (6 / 29)] * len(ratios))
    assert all(map(math.isfinite, found.losses))


def test_a_rate_is_suggested_where_the_loss_falls() -> None:
    found = ep.find_lr(experiment(), min_lr=1e-5, max_lr=100, steps=80)
    assert found.suggestion is not None
    assert found.tenth is not None
    assert 1e-3 < found.suggestion < 50
    assert found.suggestion in found.lrs
    assert found.base == 0.1
    assert found.to_json()["suggestion"] == found.suggestion


def test_the_search_ends_without_a_warning_when_the_loss_diverges(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    found = ep.find_lr(experiment(), min_lr=1e-3, max_lr=1e30, steps=60)
    assert found.reason
    assert len(found.losses) < 60
    assert found.result.steps < 60
    assert not caplog.records


def test_training_after_a_search_is_the_same_bit_for_bit() -> None:
    def train(*, is_tested: bool) -> tuple[dict[str, Any], object]:
        torch.manual_seed(11)
        random.seed(11)
        one = experiment()
        if is_tested:
            ep.find_lr(one, steps=20)
        result = one.fit()
        weights = one.inputs.given.parts["model"].state_dict()
        return weights, (result.metrics, random.random(), torch.rand(3).tolist())

    weights, numbers = train(is_tested=False)
    tested, others = train(is_tested=True)
    assert numbers == others
    assert all(torch.equal(value, tested[name]) for name, value in weights.items())


def test_training_from_a_file_after_a_search_is_the_same(shop: Path) -> None:
    def train() -> dict[str, float]:
        return ep.run("config.yaml", no_file=True, **QUIET).metrics

    alone, before = train(), tree(shop)
    ep.find_lr("config.yaml", steps=20, **QUIET)
    assert tree(shop) == before, "nothing is written"
    assert train() == alone


def test_parts_are_restored_also_when_a_step_fails() -> None:
    class Failing(TinyTask):
        def batch_loss(self, out: Any, batch: Any) -> Any:
            if self.left == 0:
                raise RuntimeError("no more")
            self.left -= 1
            return super().batch_loss(out, batch)

    task = Failing()
    task.left = 5
    one = experiment(task=task)
    model = one.inputs.given.parts["model"]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(RuntimeError, match="no more"):
        ep.find_lr(one, max_lr=10, steps=20)
    assert task.left == 5
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_groups_keep_the_ratio_of_their_rates() -> None:
    used: list[list[float]] = []

    def watch(run: ep.Run) -> None:
        run.optimizer.register_step_pre_hook(
            lambda one, *_: used.append([group["lr"] for group in one.param_groups])
        )

    optim = {"type": "SGD", "lr": 0.1, "groups": [{"match": "*.bias", "lr_mult": 0.2}]}
    found = ep.find_lr(experiment(optim=optim, hooks=[watch]), min_lr=1e-4, max_lr=1, steps=10)
    assert [max(one) for one in used] == pytest.approx(found.lrs)
    assert [min(one) / max(one) for one in used] == pytest.approx([0.2] * 10)


def test_every_rate_of_the_config_gets_a_suggestion() -> None:
    groups = [{"match": "*.bias", "lr": 0.02}]
    optim = {"type": "SGD", "lr": 0.1, "groups": groups}
    found = ep.find_lr(experiment(optim=optim), min_lr=1e-5, max_lr=100, steps=80)
    assert found.changes == {
        "optim.lr": pytest.approx(found.suggestion),
        "optim.groups.0.lr": pytest.approx(found.suggestion / 5),
    }


def test_several_optimizers_keep_the_ratio_of_their_rates() -> None:
    cycle = {"type": "OneCycleLR", "max_lr": 0.5, "total_steps": 100}
    optim = {
        "weights": {"type": "SGD", "lr": 0.1, "match": "*.weight", "schedule": cycle},
        "rest": {"type": "SGD", "lr": 0.01},
    }
    found = ep.find_lr(experiment(optim=optim), min_lr=1e-5, max_lr=100, steps=80)
    assert found.base == 0.1
    assert found.changes == {
        "optim.weights.lr": pytest.approx(found.suggestion),
        "optim.rest.lr": pytest.approx(found.suggestion / 10),
    }


def test_an_optimizer_given_as_an_object_has_no_config_keys() -> None:
    found = ep.find_lr(experiment(), min_lr=1e-5, max_lr=100, steps=80)
    assert found.suggestion is not None
    assert found.changes == {}


def test_the_schedule_of_the_config_is_not_used() -> None:
    cycle = {"type": "OneCycleLR", "max_lr": 0.5, "total_steps": 100}
    noam = {"type": "noam", "model_size": 4, "warmup": 5}
    for sections in ({}, {"schedule": cycle}, {"schedule": noam}):
        one = experiment(optim={"type": "SGD", "lr": 0.1}, **sections)
        found = ep.find_lr(one, min_lr=1e-3, max_lr=0.1, steps=10)
        assert (found.lrs[0], found.lrs[-1]) == pytest.approx((1e-3, 0.1)), sections


def test_averaged_weights_change_nothing() -> None:
    expected = ep.find_lr(experiment(), steps=10).losses
    for average in ({"type": "ema"}, {"type": "swa", "every": "1st"}):
        for monitor in ("+val/acc", "+val_ema/acc"):
            found = ep.find_lr(experiment(average=average, monitor=monitor), steps=10)
            assert found.losses == expected, (average, monitor)


def test_the_search_may_be_longer_than_the_run() -> None:
    found = ep.find_lr(experiment(train={"for": "3st"}), max_lr=0.1, steps=40)
    assert len(found.losses) == 40


def test_the_first_of_several_stages_is_tested() -> None:
    stages = [
        {"for": "2st", "freeze": ["linear.bias"], "schedule": {"type": "linear"}},
        {"for": "2st"},
    ]
    optim = {"type": "SGD", "lr": 0.1}
    found = ep.find_lr(experiment(stages=stages, optim=optim, train={}), max_lr=0.1, steps=12)
    assert len(found.losses) == 12
    assert found.lrs[-1] == pytest.approx(0.1)


def test_on_step_gets_every_step() -> None:
    steps: list[tuple[int, float, float]] = []
    found = ep.find_lr(experiment(), steps=10, on_step=lambda *one: steps.append(one))
    assert steps == [*zip(range(1, 11), found.lrs, found.losses, strict=True)]


def test_an_impossible_range_is_refused() -> None:
    table: dict[str, dict[str, Any]] = {
        "the range from 0 to 1 is invalid": {"min_lr": 0.0},
        "the range from 1 to 0.1 is invalid": {"min_lr": 1.0, "max_lr": 0.1},
        "is invalid": {"max_lr": math.inf},
        "needs at least 10 steps, got 3": {"steps": 3},
    }
    for message, options in table.items():
        with pytest.raises(ep.ConfigError, match=message):
            ep.find_lr(experiment(), **options)


def test_unusable_configs_are_refused(shop: Path) -> None:
    for change, message in {
        "optim.lr=0": r"optim\.lr: must be above 0",
        "runner=test": "no learning rate to find",
        "optim.lrr=1": r"optim\.lrr",
    }.items():
        with pytest.raises(ep.EpochalError, match=message):
            ep.find_lr("config.yaml", overrides=[change], **QUIET)


def valley(count: int = 100, *, noise: float = 0.0) -> list[float]:
    """A loss that is flat, falls around place 60, is least at 75 and explodes."""
    source = random.Random(0)
    losses = []
    for place in range(count):
        x = place / count
        loss = 1 + 1 / (1 + math.exp((x - 0.6) * 40)) + math.exp((x - 0.85) * 25)
        losses.append(loss + source.gauss(0, noise))
    return losses


def test_the_steepest_descent_and_the_lowest_loss_are_found_despite_noise() -> None:
    for noise in (0.0, 0.02, 0.1):
        advice = suggest_lr(valley(noise=noise))
        assert advice.steepest == pytest.approx(60, abs=4), noise
        assert advice.least == pytest.approx(70, abs=6), noise
    assert suggest_lr(valley(400)).steepest == pytest.approx(240, abs=8)


def test_a_loss_that_does_not_fall_suggests_nothing() -> None:
    rising = [1 + place / 50 for place in range(50)]
    noise = [random.Random(place).gauss(1, 0.5) for place in range(50)]
    for losses in ([2.0] * 50, rising, noise, [], [1.0]):
        assert suggest_lr(losses).steepest is None, losses


def test_smoothing_keeps_straight_lines_in_the_middle_and_constants_everywhere() -> None:
    line = [float(place) for place in range(40)]
    assert smooth_losses(line)[15:25] == pytest.approx(line[15:25])
    assert smooth_losses([3.0] * 40) == pytest.approx([3.0] * 40)


def test_the_search_ends_when_the_loss_diverges() -> None:
    stop = DivergenceStop()
    reasons = [stop.check_loss(loss) for loss in [1.0] * 10 + [100.0]]
    assert reasons == [""] * 10 + [f"the loss is {DIVERGENCE_FACTOR:g} times the lowest"]
    for loss in (math.nan, math.inf, -math.inf):
        assert DivergenceStop().check_loss(loss) == "the loss is no longer finite"
    stop = DivergenceStop()
    assert not any(stop.check_loss(-float(place)) for place in range(1, 50)), "falls below zero"
    assert any(stop.check_loss(1000.0) for _ in range(3))
    stop = DivergenceStop()
    assert not any(map(stop.check_loss, (0.1, 5.0, 0.1, 0.1, 0.1))), "one bad batch at the start"
