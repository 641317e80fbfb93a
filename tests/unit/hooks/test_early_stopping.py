"""Early stopping: patience, directions, bounds, NaN, and state."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from epochal.engine import Hook
from epochal.errors import ConfigError, TaskError
from epochal.hooks.early_stopping import EarlyStopping
from epochal.testing import TinyTask, execute_run, short_options, tiny_run

if TYPE_CHECKING:
    from epochal.engine import Monitor, Run
    from epochal.engine.result import RunResult


class Scripted(TinyTask):
    """Its evaluations have the given scores, one after the other."""

    def __init__(self, scores: list[float]) -> None:
        super().__init__(num_samples=4)
        self._scores = iter(scores)

    def epoch_metric(self) -> dict[str, float]:
        return {"score": next(self._scores)}


class Loading(Hook):
    """Gives a hook its state when the run has started, as a resumed run does."""

    def __init__(self, hook: EarlyStopping, state: dict[str, Any]) -> None:
        self._hook, self._state = hook, state

    def stage_start(self, run: Run, name: str) -> None:
        self._hook.load_state_dict(self._state)


class Noting(Hook):
    """Keeps the monitor of its run."""

    def __init__(self, kept: list[Monitor]) -> None:
        self._kept = kept

    def run_start(self, run: Run) -> None:
        assert run.monitor is not None
        self._kept.append(run.monitor)


def stop_after(
    scores: list[float], *hooks: Hook, monitor: str | None = "+val/score", **options: object
) -> RunResult:
    length = f"{len(scores)}ep"
    options = {"for_": length, "sanity_batches": 0} | options
    run = tiny_run(*hooks, task=Scripted(scores), monitor=monitor, options=short_options(**options))
    return execute_run(run)


def test_stops_after_patience_evaluations_without_a_better_value() -> None:
    result = stop_after([0.5, 0.6, 0.6, 0.4, 0.5, 0.9], EarlyStopping(patience=3))
    assert (result.status, result.reason, result.epochs) == ("stopped", "early_stop", 5)


def test_an_improvement_resets_the_patience() -> None:
    result = stop_after([0.5, 0.4, 0.6, 0.5, 0.7, 0.6], EarlyStopping(patience=2))
    assert (result.status, result.epochs) == ("finished", 6)


def test_smaller_is_better_with_a_minus_monitor() -> None:
    result = stop_after([3.0, 2.0, 2.5, 2.2], EarlyStopping(patience=1), monitor="-val/score")
    assert result.epochs == 3


def test_negative_values_can_be_better_too() -> None:
    result = stop_after([-5.0, -4.0, -3.0, -2.0], EarlyStopping(patience=1))
    assert result.status == "finished"


def test_a_gain_below_min_delta_does_not_count() -> None:
    result = stop_after([0.5, 0.55, 0.59, 0.58], EarlyStopping(patience=2, min_delta=0.1))
    assert result.epochs == 3


def test_small_gains_add_up_until_they_count() -> None:
    scores = [0.50, 0.56, 0.62, 0.68, 0.74]
    assert stop_after(scores, EarlyStopping(patience=2, min_delta=0.1)).status == "finished"


def test_nan_is_never_better() -> None:
    result = stop_after([0.5, math.nan, math.nan, 0.4], EarlyStopping(patience=2))
    assert result.epochs == 3


def test_only_nan_values_stop_the_run() -> None:
    assert stop_after([math.nan] * 4, EarlyStopping(patience=2)).epochs == 2


def test_bounds_stop_at_once() -> None:
    scores = [0.1, 0.2, 0.95, 0.1]
    assert stop_after(scores, EarlyStopping(patience=9, upper_bound=0.9)).epochs == 3
    scores = [3.0, 0.2, 0.1]
    hook = EarlyStopping(patience=9, lower_bound=0.2)
    assert stop_after(scores, hook, monitor="-val/score").epochs == 2


def test_the_training_mean_of_an_epoch_can_be_monitored() -> None:
    hook = EarlyStopping(patience=5, upper_bound=-1.0)  # any loss is above that
    result = stop_after([0.0] * 3, hook, monitor="-train/loss")
    assert (result.reason, result.steps) == ("early_stop", 1)


def test_evaluations_of_other_splits_do_not_count() -> None:
    every = {"val": "2ep", "test": "1ep"}
    hook = EarlyStopping(patience=2)
    scores = [0.5] * 12
    result = stop_after(scores, hook, for_="8ep", eval_every=every)
    assert result.epochs == 6  # val is evaluated after epochs 2, 4 and 6


def test_a_run_without_monitor_is_an_error_with_an_example() -> None:
    message = r"EarlyStopping: the run has no monitor(.|\n)*monitor: -val/loss"
    with pytest.raises(TaskError, match=message):
        stop_after([0.5], EarlyStopping(patience=1), monitor=None)


def test_post_metric_to_err_of_a_task_is_a_monitor() -> None:
    class Err(Scripted):
        def post_metric_to_err(self, result: dict[str, float]) -> float:
            return 1 - result["score"]

    options = short_options(for_="4ep", sanity_batches=0)
    task = Err([0.5, 0.4, 0.9, 0.9])
    run = tiny_run(EarlyStopping(patience=1), task=task, monitor=None, options=options)
    assert execute_run(run).epochs == 2


def test_one_object_starts_over_in_each_run() -> None:
    hook = EarlyStopping(patience=2)
    assert stop_after([0.9, 0.5, 0.4], hook).reason == "early_stop"
    assert stop_after([0.1, 0.2, 0.3, 0.4], hook).reason == "max_epochs"


def test_early_stopping_uses_the_monitor_of_the_run() -> None:
    hook, monitors = EarlyStopping(patience=2), []
    noting = Noting(monitors)
    result = stop_after([0.9, 0.5, 0.4], hook, noting)
    assert (monitors[0].best, monitors[0].misses) == (0.9, 2) == (result.best, 2)
    assert hook.state_dict() == {"own": None}  # the run saves its monitor


def test_a_loaded_state_holds_for_one_run() -> None:
    hook = EarlyStopping(patience=1, min_delta=0.01)
    state = {"own": {"best": 0.9, "last": 0.9, "improved": True, "misses": 0}}
    assert stop_after([0.5, 0.6], hook, Loading(hook, state)).epochs == 1
    assert stop_after([0.5, 0.6], hook).epochs == 2


def test_state_has_the_remaining_patience() -> None:
    hook = EarlyStopping(patience=3, min_delta=0.01)
    stop_after([0.9, 0.5, 0.4], hook)
    twin = EarlyStopping(patience=3, min_delta=0.01)
    loading = Loading(twin, hook.state_dict())
    assert stop_after([0.8, 1.0], twin, loading).epochs == 1
    assert {"best": 0.9, "misses": 3}.items() <= twin.state_dict()["own"].items()


def test_nothing_stops_before_min_for() -> None:
    scores = [0.9, 0.5, 0.4, 0.3, 0.2]
    assert stop_after(scores, EarlyStopping(patience=1, min_for="4ep")).epochs == 4
    assert stop_after(scores, EarlyStopping(patience=1, min_for="3st")).steps == 3
    bounded = EarlyStopping(patience=9, upper_bound=0.1, min_for="2ep")
    assert stop_after(scores, bounded).epochs == 2


def test_the_ending_epoch_counts_for_min_for() -> None:
    hook = EarlyStopping(patience=5, upper_bound=-1.0, min_for="2ep")
    assert stop_after([0.0] * 3, hook, monitor="-train/loss").epochs == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"patience": 0}, r"EarlyStopping\.patience: must be at least 1, got 0"),
        ({"patience": 1, "min_delta": -0.1}, r"min_delta: must be at least 0, got -0\.1"),
        ({"patience": 1, "min_delta": math.nan}, r"min_delta: must be at least 0, got nan"),
    ],
)
def test_invalid_arguments_are_errors(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EarlyStopping(**arguments)
