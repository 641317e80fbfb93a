"""Tests of the monitored metric."""

from __future__ import annotations

import math

import pytest
import torch

from engine.parts import Sums, adder, fit, make_run
from epochal.engine import Monitor, TorchSchedule
from epochal.errors import ConfigError
from epochal.hooks.early_stopping import EarlyStopping


def test_the_sign_sets_the_mode() -> None:
    assert (Monitor.parse("+val/acc").metric, Monitor.parse("+val/acc").mode) == ("val/acc", "max")
    assert (Monitor.parse("-val/loss").metric, Monitor.parse("-val/loss").mode) == (
        "val/loss",
        "min",
    )
    assert str(Monitor.parse("+val/acc")) == "+val/acc"
    assert str(Monitor.parse("-val/err")) == "-val/err"


def test_a_mapping_sets_all_options() -> None:
    monitor = Monitor.parse({"metric": "val/acc", "mode": "max", "min_delta": 0.1})
    assert (monitor.metric, monitor.mode, monitor.min_delta) == ("val/acc", "max", 0.1)
    assert Monitor.parse({"metric": "+val/acc"}).mode == "max"
    assert Monitor.parse(monitor) is monitor
    assert Monitor.parse({"metric": "+val/acc", "mode": None, "min_delta": 0.1}).mode == "max"


def test_invalid_monitors_are_refused() -> None:
    table = [
        ({"metric": "val/acc"}, "does not say which way is better: 'val/acc'"),
        ("val/acc", r"'val/acc'\n  write '\+val/acc' if larger is better"),
        ("+", "which way"),
        (
            {"metric": "+val/acc", "mode": "min"},
            r"monitor.mode: 'min' contradicts the sign of '\+val/acc'",
        ),
        ({"metric": "val/acc", "mode": "maximum"}, r"monitor.mode: unknown mode 'maximum'"),
    ]
    for spec, message in table:
        with pytest.raises(ConfigError, match=message):
            Monitor.parse(spec)


def test_the_first_value_is_the_best_and_nan_never_is() -> None:
    monitor = Monitor("val/loss")
    assert not monitor.update(math.nan)
    assert monitor.best is None
    assert monitor.update(5.0)
    assert not monitor.update(math.nan)
    assert (monitor.best, monitor.improved) == (5.0, False)


def test_a_larger_negative_value_beats_a_smaller_one_defect_11() -> None:
    monitor = Monitor("val/score", "max")
    assert monitor.update(-10.0)
    assert monitor.update(-3.0)
    assert not monitor.update(-4.0)
    assert monitor.best == -3.0


def test_a_value_must_be_better_by_the_delta() -> None:
    low, high = Monitor("a", "min", min_delta=0.5), Monitor("a", "max", min_delta=0.5)
    assert [low.update(value) for value in (2.0, 1.6, 1.4)] == [True, False, True]
    assert not low.update(1.4)
    assert [high.update(value) for value in (2.0, 2.4, 2.6)] == [True, False, True]


def test_the_best_value_is_kept_on_resume_defect_3() -> None:
    before = Monitor("val/acc", "max")
    before.update(0.9)
    after = Monitor("val/acc", "max")
    after.load_state_dict(before.state_dict())
    assert not after.update(0.5)
    assert after.best == 0.9


def test_one_monitor_drives_best_model_early_stopping_and_plateau() -> None:
    class Scored(Sums):
        scores = iter([math.nan, 0.5, 0.4, math.nan, 0.6, 0.5, 0.5, 0.5])

        def epoch_metric(self, split: str) -> dict[str, float]:
            return {"score": next(self.scores)} if split == "val" else {}

    model = adder()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
    better: list[int] = []
    rates: list[float] = []
    run = make_run(
        Scored(),
        model,
        hooks=(EarlyStopping(patience=3),),
        for_="9ep",
        sanity_batches=0,
        parts={
            "optimizer": optimizer,
            "schedule": TorchSchedule(plateau),
            "monitor": Monitor.parse("+val/score"),
        },
    )
    run.on("better_model", lambda run: better.append(run.epoch))
    run.on("eval_end", lambda run: rates.append(run.learning_rates["lr"]))
    result = fit(run)
    assert better == [2, 5]  # the first number, whatever it is, and a larger one
    assert (result.best, result.reason, result.epochs) == (0.6, "early_stop", 8)
    assert rates == [0.5, 0.5, 0.25, 0.125, 0.125, 0.0625, 0.03125, 0.015625]
