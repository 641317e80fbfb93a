"""Tests of stages: when each begins and ends, and what a checkpoint knows of it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from engine.parts import EventRecorder, Hands, Scored, fit, make_run
from epochal.config import parse_condition, parse_duration
from epochal.engine import Hook, Monitor, Run
from epochal.engine.interfaces.stage import Plateau, Stage
from epochal.engine.measure.clock import Clock
from epochal.engine.run.stage_progress import StageProgress
from epochal.errors import CheckpointError, ConfigError


def stage(name: str, length: str | None = None, **given: Any) -> Stage:
    return Stage(name=name, length=None if length is None else parse_duration(length), **given)


def staged(
    *stages: Stage, task: object = None, hooks: tuple[object, ...] = (), **given: Any
) -> Run:
    """A run of five steps per epoch."""
    parts = {"stages": stages, **given.pop("parts", {})}
    return make_run(task, hooks=hooks, parts=parts, sanity_batches=0, **given)


class Borders(Hook):
    """Notes at which step and in which epoch each stage begins and ends."""

    def __init__(self) -> None:
        self.starts: dict[str, tuple[int, int]] = {}
        self.ends: dict[str, tuple[int, int]] = {}

    def stage_start(self, run: Run, name: str) -> None:
        self.starts[name] = run.step, run.epoch

    def stage_end(self, run: Run, name: str) -> None:
        self.ends[name] = run.step, run.epoch


def test_each_stage_starts_at_the_exact_step() -> None:
    table: list[tuple[tuple[str, ...], tuple[int, ...], int]] = [
        (("3st", "4st"), (0, 3), 7),
        (("1ep", "2ep"), (0, 5), 15),
        (("3st", "1ep"), (0, 3), 5),  # an epoch counts for the stage in which it ends
        (("3st", "2ep", "1st"), (0, 3, 10), 11),
        (("9sa", "4sa"), (0, 3), 4),
        (("5st", "5st"), (0, 5), 10),
    ]
    for lengths, starts, end in table:
        borders = Borders()
        stages = [stage(f"s{index}", length) for index, length in enumerate(lengths)]
        result = fit(staged(*stages, hooks=(borders,)))
        found = [[step for step, _ in one.values()] for one in (borders.starts, borders.ends)]
        assert found == [[*starts], [*starts[1:], end]], lengths
        assert (result.steps, result.status) == (end, "finished")


def test_the_totals_count_all_stages() -> None:
    run = staged(stage("a", "3st"), stage("b", "2ep"), stage("c", "6st"))
    limits = []
    run.on("run_start", lambda run: limits.append(run.limits))
    result = fit(run)
    assert (limits[0].steps, limits[0].epochs) == (16, 4)
    assert (result.steps, result.epochs) == (16, 3)


def test_events_of_a_stage_within_an_epoch_come_in_order() -> None:
    recorder = EventRecorder("stage_start", "stage_end", "step_end", "epoch_start", "epoch_end")
    fit(staged(stage("a", "2st"), stage("b", "1ep"), hooks=(recorder,), eval_every=0))
    assert recorder.entries == [
        *["stage_start a", "epoch_start train", "step_end 1", "step_end 2", "stage_end a"],
        *["stage_start b", "step_end 3", "step_end 4", "step_end 5", "epoch_end train"],
        "stage_end b",
    ]


def test_a_stage_that_ends_with_an_epoch_ends_after_it() -> None:
    recorder = EventRecorder("stage_start", "stage_end", "epoch_end", "eval_end")
    fit(staged(stage("a", "5st"), stage("b", "1ep"), hooks=(recorder,), eval_every="1ep"))
    assert recorder.entries == [
        *["stage_start a", "epoch_end train", "epoch_end val", "eval_end val", "stage_end a"],
        *["stage_start b", "epoch_end train", "epoch_end val", "eval_end val", "stage_end b"],
    ]


def test_a_metric_ends_a_stage_at_the_step_at_which_it_is_measured() -> None:
    until, borders = parse_condition("val/score >= 0.9"), Borders()
    stages = stage("a", "9ep", until=until), stage("b", "2st")
    task = Scored(0.1, math.nan, 0.95, 0.1)
    fit(staged(*stages, task=task, hooks=(borders,), eval_every="2st"))
    assert borders.starts == {"a": (0, 0), "b": (6, 1)}
    assert borders.ends["b"] == (8, 1)
    stages = stage("a", "3st", until=until), stage("b", "2st")
    fit(staged(*stages, task=Scored(*[0.1] * 9), hooks=(borders,), eval_every="2st"))
    assert borders.starts["b"] == (3, 0)  # by its length, if the metric is never reached


def test_a_metric_that_was_reached_before_its_first_step_ends_no_stage() -> None:
    until, borders = parse_condition("val/score >= 0.9"), Borders()
    stages = stage("a", "2st"), stage("b", "9ep", until=until), stage("c", "1st")
    fit(staged(*stages, task=Scored(*[1.0] * 9), hooks=(borders,), eval_every="2st"))
    assert {name: step for name, (step, _) in borders.starts.items()} == {"a": 0, "b": 2, "c": 4}


def test_the_run_ends_with_the_reason_of_its_last_stage() -> None:
    stages = stage("a", "2st"), stage("b", "9ep", until=parse_condition("val/score >= 0.9"))
    result = fit(staged(*stages, task=Scored(0.1, 0.1, 0.95), eval_every="2st"))
    assert (result.status, result.reason, result.steps) == ("finished", "target", 6)


def test_a_plateau_is_counted_from_the_start_of_its_stage() -> None:
    borders, monitor = Borders(), Monitor("val/score", "max")
    stages = stage("a", "4st"), stage("b", until=Plateau(2)), stage("c", "1st")
    # The best of stage b is 0.5, at step 8: that 0.9 was better before does not matter.
    task = Scored(0.9, 0.8, 0.3, 0.5, 0.4, math.nan, 0.6)
    run = staged(*stages, task=task, hooks=(borders,), eval_every="2st", parts={"monitor": monitor})
    fit(run)
    assert borders.starts["c"][0] == 12


def test_a_plateau_needs_a_monitor() -> None:
    run = staged(stage("a", until=Plateau(2)), stage("b", "1st"))
    with pytest.raises(ConfigError, match=r"stages.0.until: a plateau needs a monitor"):
        fit(run)


def test_time_is_counted_from_the_start_of_a_stage() -> None:
    hands, borders = Hands(), Borders()
    run = staged(stage("a", "10s"), stage("b", "20s"), stage("c", "1st"), hooks=(borders,))
    run.clock = Clock(hands)

    def wait(run: Run) -> None:
        hands.seconds += 4
        run.plan.wake()

    run.on("step_end", wait)
    fit(run)
    assert {name: step for name, (step, _) in borders.starts.items()} == {"a": 0, "b": 3, "c": 8}


def test_a_stage_without_an_end_lasts_until_a_hook_stops_the_run() -> None:
    run = staged(stage("a"))
    run.on("step_end", lambda run: run.stop("enough") if run.step == 7 else None)
    assert fit(run).steps == 7


def test_a_checkpoint_of_a_stage_that_does_not_exist_is_refused() -> None:
    progress = StageProgress((stage("a", "1ep"), stage("b", "1ep")))
    progress.index = 1
    state = progress.state_dict()
    with pytest.raises(CheckpointError, match="is of stage 2, 'b', and there are 1"):
        StageProgress((stage("a", "1ep"),)).load_state_dict(state, None)


def test_a_checkpoint_has_the_index_and_the_name_of_its_stage() -> None:
    states = []
    run = staged(stage("a", "2st"), stage("b", "2st"))
    run.on("step_end", lambda run: states.append(run.stage_progress.state_dict()))
    fit(run)
    assert [(one["index"], one["name"]) for one in states] == [(0, "a")] * 2 + [(1, "b")] * 2
