"""Position and speed of a run, from its counters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from epochal.engine.interfaces.hook import Hook
from epochal.engine.interfaces.options import OptimOptions
from epochal.engine.runner import Predict
from epochal.hooks.console.progress_display import RunProgress
from epochal.testing import TinyTask, carry_out, short_options, tiny_run

if TYPE_CHECKING:
    from collections.abc import Iterable

    from epochal.engine.run import Run


@dataclass(frozen=True)
class Seen:
    """What the progress said at one moment."""

    epoch: str
    completed: int
    total: int | None
    rate: float
    unit: str
    elapsed: float
    eta: float | None


class Follower(Hook):
    """Follows a run as the console does; a step takes 2 s, a batch of an evaluation 0.5 s."""

    priority = 0

    def __init__(self) -> None:
        self.steps: list[Seen] = []
        self.evaluated: list[tuple[int, int | None]] = []
        self.rates: list[float] = []
        self.seconds: list[float] = []
        self._time = 0.0

    def setup(self, run: Run) -> None:
        run.clock.now = lambda: self._time
        run.clock.start()

    def run_start(self, run: Run) -> None:
        self._progress = RunProgress(run)

    def epoch_start(self, run: Run, split: str) -> None:
        if split == "train":
            self._progress.start_epoch()
        else:
            self._progress.start_evaluation()

    def loop_start(self, run: Run, split: str) -> None:
        if split != "train":
            self._progress.start_loader(split)

    def step_end(self, run: Run) -> None:
        self._time += 2.0
        one = self._progress
        one.update_speed()
        self.rates.append(one.rate)
        times = one.elapsed_seconds, one.eta_seconds
        self.steps.append(
            Seen(one.epoch_count, one.completed, one.total, one.rate, one.unit, *times)
        )
        one.restart_speed()

    def batch_end(self, run: Run, split: str) -> None:  # type: ignore[override]  # by name
        if split != "train":
            self._time += 0.5
            self.evaluated.append(self._progress.evaluated)
            self._progress.update_speed()
            self.rates.append(self._progress.rate)

    def epoch_end(self, run: Run, split: str, metrics: dict[str, float]) -> None:
        one = self._progress
        self.seconds.append(one.epoch_seconds if split == "train" else one.evaluation_seconds)


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


def follow(*, task: TinyTask | None = None, runner: Any = None, **options: Any) -> Follower:
    follower = Follower()
    options = {"sanity_batches": 0} | options
    run = tiny_run(follower, task=task, options=short_options(**options), monitor=None)
    carry_out(run, runner)
    return follower


def test_steps_are_counted_within_their_epoch() -> None:
    steps = follow(for_="2ep", eval_every=0).steps
    assert [(one.epoch, one.completed) for one in steps] == [
        *(("1/2", index) for index in range(1, 7)),
        *(("2/2", index) for index in range(1, 7)),
    ]
    assert {one.total for one in steps} == {6}


def test_evaluations_and_predictions_count_their_own_batches() -> None:
    expected = [(index, 6) for index in range(1, 7)]
    assert follow(for_="1ep").evaluated == expected
    assert follow(runner=Predict()).evaluated == expected


def test_speed_is_in_samples_per_second_and_the_remaining_time_is_known() -> None:
    steps = follow(for_="2ep", eval_every=0).steps
    assert {(one.rate, one.unit) for one in steps} == {(2.0, "sa")}
    assert steps[2].elapsed == 6.0
    assert steps[2].eta == pytest.approx(18.0)


def test_an_evaluation_does_not_lower_the_shown_speed() -> None:
    assert set(follow(for_="2ep").rates) == {2.0}


def test_seconds_of_epochs_and_evaluations_are_separate() -> None:
    assert follow(for_="2ep").seconds == [12.0, 3.0, 12.0, 3.0]


def test_a_loader_without_length_has_no_total() -> None:
    steps = follow(task=Stream(), for_="2ep", eval_every=0).steps
    assert {(one.epoch[-2:], one.total, one.eta) for one in steps} == {("/2", None, None)}


def test_a_run_that_ends_by_steps_shows_its_number_of_epochs() -> None:
    assert follow(for_="9st", eval_every=0).steps[-1].epoch == "2/2"


def test_steps_before_a_checkpoint_count_for_their_epoch() -> None:
    run = tiny_run()
    run.options = replace(run.options, optim=OptimOptions(accumulate=2))
    progress = RunProgress(run)
    progress.start_epoch()
    run.step = 10
    run.feed.start_at(1, 3, 40)
    progress.resume_epoch()
    assert progress.completed == 2
