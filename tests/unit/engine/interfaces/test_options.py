"""Tests of the options that configs set."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from epochal.config.duration import Duration
from epochal.engine.interfaces.every import Every
from epochal.engine.interfaces.options import (
    CheckpointOptions,
    EngineOptions,
    HookOptions,
    LogOptions,
    OptimOptions,
    TrainOptions,
)
from epochal.errors import ConfigError


def test_text_is_parsed_and_values_are_accepted() -> None:
    options = TrainOptions(for_="3ep", max_time="2h", eval_every="10st")
    assert options.for_ == Duration(3, "ep")
    assert options.max_time == Duration(2, "h")
    assert options.eval_periods == {"val": Every(10, "st")}
    options = TrainOptions(for_=Duration(3, "st"), eval_every=Every.NEVER)
    assert (options.for_, options.eval_periods["val"]) == (Duration(3, "st"), Every.NEVER)
    assert LogOptions(console_every="1ep").console_every == Every(1, "ep")
    assert HookOptions(on=("dev",), every="2ep") == HookOptions(on=("val",), every=Every(2, "ep"))


def test_defaults_are_ten_epochs_evaluated_and_saved_automatically() -> None:
    options = TrainOptions()
    assert str(options.for_) == "10ep"
    assert options.eval_periods == {"val": "auto"}
    assert CheckpointOptions().periods == ["auto"]


def test_the_smaller_limit_of_batches_holds_for_evaluations() -> None:
    for limits, expected in (
        ({}, None),
        ({"limit_batches": 3}, 3),
        ({"limit_eval_batches": 2}, 2),
        ({"limit_batches": 3, "limit_eval_batches": 20}, 3),
    ):
        assert TrainOptions(**limits).max_eval_batches == expected, limits


def test_each_split_may_have_its_period() -> None:
    options = TrainOptions(eval_every={"dev": "1ep", "test": 0})
    assert options.eval_periods == {"val": Every(1, "ep"), "test": Every.NEVER}


def test_invalid_values_are_refused() -> None:
    table: list[tuple[Any, dict[str, Any], str]] = [
        (TrainOptions, {"for_": "ten"}, "train.for: "),
        (TrainOptions, {"for_": 10}, "train.for: "),
        (TrainOptions, {"max_time": "3ep"}, r"max_time: must be a time, got '3ep'\n  write for"),
        (TrainOptions, {"eval_every": 5}, "train.eval_every: a period needs a unit"),
        (TrainOptions, {"eval_every": {"val": "x"}}, "train.eval_every.val: "),
        (TrainOptions, {"eval_every": {"predict": "1ep"}}, "'predict' is not evaluated"),
        (TrainOptions, {"sanity_batches": -1}, "train.sanity_batches: must be at least 0, got -1"),
        (TrainOptions, {"limit_batches": 0}, "train.limit_batches: must be at least 1, got 0"),
        (OptimOptions, {"accumulate": 0}, "optim.accumulate"),
        (OptimOptions, {"clip": 0.0}, "optim.clip: must be above 0"),
        (OptimOptions, {"noise": 0}, "optim.noise: must be"),
        (OptimOptions, {"noise_decay": -1}, "optim.noise_decay: must be"),
        (LogOptions, {"record_every": "often"}, r"log\.record_every"),
        (LogOptions, {"system_every": 10}, r"log\.system_every: a period needs a unit, got 10"),
        (
            LogOptions,
            {"system_every": "5st"},
            r"system_every: must be a time, got '5st'\n  .* 10s,",
        ),
        (EngineOptions, {"num_threads": 0}, r"engine\.num_threads"),
        (EngineOptions, {"empty_cache_every": 100}, r"engine\.empty_cache_every"),
        (EngineOptions, {"hang_after": "5st"}, r"engine\.hang_after: must be a time, got '5st'"),
        (CheckpointOptions, {"every": ["1ep", "soon"]}, r"checkpoint\.every: .*'soon'"),
        (CheckpointOptions, {"keep_last": 0}, r"checkpoint\.keep_last"),
        (CheckpointOptions, {"keep_best": -1}, r"checkpoint\.keep_best"),
        (
            CheckpointOptions,
            {"name": "{tag}"},
            r"'\{tag\}' gives every .*same name\n  add \{step\}",
        ),
    ]
    for options, arguments, message in table:
        with pytest.raises(ConfigError, match=message):
            options(**arguments)


def test_options_and_hooks_are_imported_without_torch() -> None:
    code = (
        "import sys; from epochal.engine.interfaces import hook, options, task;"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_defaults_of_the_engine() -> None:
    options = EngineOptions()
    assert (options.step, options.precision, options.on_nonfinite) == ("auto", "fp32", "warn")
    assert (options.channels_last, options.compile_backend) == (False, "inductor")
    assert options.empty_cache_every.is_never


def test_several_checkpoint_periods_may_be_given() -> None:
    options = CheckpointOptions(every=["1ep", "10min", 0])
    assert [str(every) for every in options.periods] == ["1ep", "10min"]
    assert CheckpointOptions(every=0).periods == []


def test_a_fold_must_be_one_of_the_folds() -> None:
    assert TrainOptions(folds=3, fold=3).fold == 3
    for folds in (None, 2):
        with pytest.raises(ConfigError, match=r"train\.fold: there is no fold 3"):
            TrainOptions(folds=folds, fold=3)
    with pytest.raises(ConfigError, match=r"train\.folds: must be at least 2"):
        TrainOptions(folds=1)


def test_a_target_is_parsed() -> None:
    assert str(TrainOptions(until="val/acc >= 0.5").until) == "val/acc >= 0.5"
    with pytest.raises(
        ConfigError, match=r"train\.until: expected a condition(.|\n)*write 'val/acc"
    ):
        TrainOptions(until="soon")
