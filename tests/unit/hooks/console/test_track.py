"""Tracks: positions and paces from the counters of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from epochal.engine.hook import Hook
from epochal.engine.options import OptimOptions
from epochal.engine.runner import Predict
from epochal.hooks.console.track import Track
from epochal.testing import TinyTask, carry_out, short_options, tiny_run

if TYPE_CHECKING:
    from collections.abc import Iterable

    from epochal.engine.run import Run
    from epochal.hooks.console.lines import Pace, Position


class Tracker(Hook):
    """Follows a run as the console does and keeps what the track says; a step takes 2 s."""

    priority = 0

    def __init__(self) -> None:
        self.positions: list[Position] = []
        self.evaluations: list[Position] = []
        self.paces: list[Pace] = []
        self.seconds: list[float] = []
        self._time = 0.0

    def setup(self, run: Run) -> None:
        run.clock.now = lambda: self._time
        run.clock.start()

    def run_start(self, run: Run) -> None:
        self._track = Track(run)

    def epoch_start(self, run: Run, split: str) -> None:
        if split == "train":
            self._track.start_epoch()
        else:
            self._track.start_evaluation()

    def loop_start(self, run: Run, split: str) -> None:
        if split != "train":
            self._track.start_loop(split)

    def step_end(self, run: Run) -> None:
        self._time += 2.0
        self.positions.append(self._track.position())
        self.paces.append(self._track.pace())
        self._track.mark()

    def batch_end(self, run: Run, split: str) -> None:  # type: ignore[override]  # by name
        if split != "train":
            self._time += 0.5
            self.evaluations.append(self._track.evaluation())
            self.paces.append(self._track.pace())

    def epoch_end(self, run: Run, split: str, metrics: dict[str, float]) -> None:
        is_train = split == "train"
        seconds = self._track.epoch_seconds if is_train else self._track.evaluation_seconds
        self.seconds.append(seconds)


class Stream(TinyTask):
    """A training loader that does not know its length nor its batch size."""

    def __init__(self) -> None:
        super().__init__()
        self.train_loader = _Unsized(self.train_loader)  # type: ignore[assignment]  # any iterable


class _Unsized:
    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = batches

    def __iter__(self) -> Any:
        return iter(self._batches)


def track(*, task: TinyTask | None = None, runner: Any = None, **options: Any) -> Tracker:
    tracker = Tracker()
    options = {"sanity_batches": 0} | options
    run = tiny_run(tracker, task=task, options=short_options(**options), monitor=None)
    carry_out(run, runner)
    return tracker


def test_steps_are_counted_within_their_epoch() -> None:
    tracker = track(for_="2ep", eval_every=0)
    assert [(p.epoch, p.index) for p in tracker.positions] == [
        *((1, index) for index in range(1, 7)),
        *((2, index) for index in range(1, 7)),
    ]
    assert {(p.num_epochs, p.length) for p in tracker.positions} == {(2, 6)}


def test_evaluations_count_their_own_batches() -> None:
    tracker = track(for_="1ep")
    assert [(p.index, p.length) for p in tracker.evaluations] == [(i, 6) for i in range(1, 7)]


def test_predictions_are_counted_like_evaluations() -> None:
    tracker = track(runner=Predict())
    assert [p.index for p in tracker.evaluations] == list(range(1, 7))


def test_pace_knows_samples_per_second_and_the_time_left() -> None:
    tracker = track(for_="2ep", eval_every=0)
    assert {(pace.rate, pace.unit) for pace in tracker.paces} == {(2.0, "sa")}
    assert tracker.paces[2].elapsed == 6.0
    assert tracker.paces[2].left == pytest.approx(18.0)


def test_an_evaluation_does_not_slow_down_the_shown_training() -> None:
    tracker = track(for_="2ep")
    assert {pace.rate for pace in tracker.paces} == {2.0}


def test_seconds_of_epochs_and_evaluations_are_kept_apart() -> None:
    tracker = track(for_="2ep")
    assert tracker.seconds == [12.0, 3.0, 12.0, 3.0]


def test_a_loader_without_length_is_followed_too() -> None:
    tracker = track(task=Stream(), for_="2ep", eval_every=0)
    assert {(p.num_epochs, p.length) for p in tracker.positions} == {(2, None)}
    assert all(pace.left is None for pace in tracker.paces)


def test_a_run_that_ends_by_steps_knows_about_how_many_epochs_that_is() -> None:
    assert track(for_="9st", eval_every=0).positions[-1].num_epochs == 2


def test_steps_before_a_checkpoint_count_for_their_epoch() -> None:
    run = tiny_run()
    run.options = replace(run.options, optim=OptimOptions(accumulate=2))
    follower = Track(run)
    follower.start_epoch()
    run.step = 10
    run.feed.start_at(1, 3, 40)
    follower.go_on()
    assert follower.position().index == 2
