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


def test_losses_follow_rates_that_grow_by_equal_ratios(shop: Path) -> None:
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


def test_the_test_ends_when_the_loss_explodes_and_warns_of_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    found = ep.find_lr(experiment(), min_lr=1e-3, max_lr=1e30, steps=60)
    assert found.reason
    assert len(found.losses) < 60
    assert found.result.steps < 60
    assert not caplog.records


def test_training_after_a_test_gives_the_same_bits_as_without() -> None:
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


def test_training_from_a_file_after_a_test_gives_the_same_bits_as_without(shop: Path) -> None:
    def train() -> dict[str, float]:
        return ep.run("config.yaml", no_file=True, **QUIET).metrics

    alone = train()
    ep.find_lr("config.yaml", steps=20, **QUIET)
    assert train() == alone


def test_parts_are_put_back_also_when_a_step_fails() -> None:
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


def test_every_rate_of_the_config_is_told_what_it_becomes() -> None:
    groups = [{"match": "*.bias", "lr": 0.02}]
    optim = {"type": "SGD", "lr": 0.1, "groups": groups}
    found = ep.find_lr(experiment(optim=optim), min_lr=1e-5, max_lr=100, steps=80)
    assert found.changes == {
        "optim.lr": pytest.approx(found.suggestion),
        "optim.groups.0.lr": pytest.approx(found.suggestion / 5),
    }


def test_several_optimizers_keep_the_ratio_of_their_rates_whatever_their_schedules() -> None:
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


def test_an_optimizer_that_is_an_object_has_no_line_of_a_config() -> None:
    found = ep.find_lr(experiment(), min_lr=1e-5, max_lr=100, steps=80)
    assert found.suggestion is not None
    assert found.changes == {}


@pytest.mark.parametrize(
    "schedule",
    [
        {"type": "OneCycleLR", "max_lr": 0.5, "total_steps": 100},
        {"type": "noam", "model_size": 4, "warmup": 5},
        None,
    ],
)
def test_a_schedule_of_the_config_has_no_say(schedule: Any) -> None:
    sections = {} if schedule is None else {"schedule": schedule}
    optim = {"type": "SGD", "lr": 0.1}
    found = ep.find_lr(experiment(optim=optim, **sections), min_lr=1e-3, max_lr=0.1, steps=10)
    assert found.lrs[0] == pytest.approx(1e-3)
    assert found.lrs[-1] == pytest.approx(0.1)


def test_steps_go_on_over_the_end_of_a_short_run_and_of_its_epochs() -> None:
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


def test_every_step_is_told() -> None:
    told: list[tuple[int, float, float]] = []
    found = ep.find_lr(experiment(), steps=10, on_step=lambda *one: told.append(one))
    assert [step for step, _, _ in told] == list(range(1, 11))
    assert tuple(lr for _, lr, _ in told) == found.lrs
    assert tuple(loss for _, _, loss in told) == found.losses


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_lr": 0.0}, "the range from 0 to 1 makes no sense"),
        ({"min_lr": 1.0, "max_lr": 0.1}, "the range from 1 to 0.1 makes no sense"),
        ({"max_lr": math.inf}, "makes no sense"),
        ({"steps": 3}, "takes 10 steps at least, got 3"),
    ],
)
def test_a_range_that_makes_no_sense_is_refused(options: Any, message: str) -> None:
    with pytest.raises(ep.ConfigError, match=message):
        ep.find_lr(experiment(), **options)


def test_a_rate_of_zero_says_nothing_about_ratios() -> None:
    with pytest.raises(ep.ConfigError, match=r"optim\.lr: must be above 0"):
        ep.find_lr(experiment(optim={"type": "SGD", "lr": 0.0}))


def test_a_config_that_does_not_train_is_refused(shop: Path) -> None:
    with pytest.raises(ep.EpochalError, match="no learning rate to find"):
        ep.find_lr("config.yaml", overrides=["runner=test"], **QUIET)


def test_mistakes_of_the_config_are_reported(shop: Path) -> None:
    with pytest.raises(ep.ConfigError, match=r"optim\.lrr"):
        ep.find_lr("config.yaml", overrides=["optim.lrr=1"], **QUIET)


def test_nothing_is_written(shop: Path) -> None:
    before = sorted(shop.rglob("*"))
    ep.find_lr("config.yaml", steps=10, **QUIET)
    assert [path for path in sorted(shop.rglob("*")) if "__pycache__" not in str(path)] == [
        path for path in before if "__pycache__" not in str(path)
    ]


def valley(count: int = 100, *, noise: float = 0.0) -> list[float]:
    """A loss that is flat, falls around place 60, is least at 75 and explodes."""
    source = random.Random(0)
    losses = []
    for place in range(count):
        x = place / count
        loss = 1 + 1 / (1 + math.exp((x - 0.6) * 40)) + math.exp((x - 0.85) * 25)
        losses.append(loss + source.gauss(0, noise))
    return losses


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.1])
def test_the_steepest_place_and_the_least_loss_are_found_through_noise(noise: float) -> None:
    advice = suggest_lr(valley(noise=noise))
    assert advice.steepest == pytest.approx(60, abs=4)
    assert advice.least == pytest.approx(70, abs=6)


def test_more_steps_find_the_same_place() -> None:
    assert suggest_lr(valley(400)).steepest == pytest.approx(240, abs=8)


@pytest.mark.parametrize(
    "losses",
    [
        [2.0] * 50,
        [1 + place / 50 for place in range(50)],
        [random.Random(place).gauss(1, 0.5) for place in range(50)],
        [],
        [1.0],
    ],
)
def test_a_loss_that_does_not_fall_suggests_nothing(losses: list[float]) -> None:
    assert suggest_lr(losses).steepest is None


def test_smoothing_keeps_straight_lines_in_the_middle_and_constants_everywhere() -> None:
    line = [float(place) for place in range(40)]
    assert smooth_losses(line)[15:25] == pytest.approx(line[15:25])
    assert smooth_losses([3.0] * 40) == pytest.approx([3.0] * 40)


def test_a_test_ends_when_the_loss_is_a_multiple_of_the_least() -> None:
    ending = DivergenceStop()
    heard = [ending.check_loss(loss) for loss in [1.0] * 10 + [100.0]]
    assert heard[:10] == [""] * 10
    assert heard[10] == f"the loss is {DIVERGENCE_FACTOR:g} times the least"


def test_one_bad_batch_at_the_start_ends_nothing() -> None:
    ending = DivergenceStop()
    assert not any(ending.check_loss(loss) for loss in (0.1, 5.0, 0.1, 0.1, 0.1))


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_ends_a_test_at_once(loss: float) -> None:
    assert DivergenceStop().check_loss(loss) == "the loss is not finite any more"


def test_losses_below_zero_end_a_test_only_when_they_rise() -> None:
    ending = DivergenceStop()
    assert not any(ending.check_loss(-float(place)) for place in range(1, 50))
    assert any(ending.check_loss(1000.0) for _ in range(3))
