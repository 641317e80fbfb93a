"""Tests of how long a run lasts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, WeightedRandomSampler

from engine.parts import Hands, Points, Scored, Sums, fit, make_run, numbers
from epochal.config.duration import parse_duration
from epochal.engine import Hook
from epochal.engine.feed.feed import Feed
from epochal.engine.run.engine_run import engine_run
from epochal.engine.run.stage_progress import TrainingLimits
from epochal.engine.stages.transition import (
    EpochSize,
    TrainingPosition,
    find_limits,
    read_epoch_size,
)
from epochal.errors import TaskError
from resume import assert_same, follow, resume

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.engine import Run


def limits_of(feed: Feed, duration: str, max_time: str | None = None) -> TrainingLimits:
    length = parse_duration(duration)
    end = TrainingPosition().after(length, read_epoch_size(feed))
    return find_limits(end, [length, None if max_time is None else parse_duration(max_time)])


def feed(*, accumulate: int = 1) -> Feed:
    task = Sums(20, batch_size=8)
    return Feed(task, seed=0, accumulate=accumulate, limit=None)


def test_totals_follow_from_the_loader() -> None:
    table = [
        ("4ep", 1, TrainingLimits(4, 12)),
        ("4ep", 2, TrainingLimits(4, 8)),
        ("7st", 1, TrainingLimits(3, 7)),
        ("40sa", 1, TrainingLimits(2, 6)),
        ("29sa", 1, TrainingLimits(2, 5)),
        ("10min", 1, TrainingLimits(None, None, 600)),
    ]
    found = [limits_of(feed(accumulate=accumulate), duration) for duration, accumulate, _ in table]
    assert found == [limits for _, _, limits in table]


def test_the_shorter_time_counts() -> None:
    assert limits_of(feed(), "1h", "10s").seconds == 10


def test_totals_are_unknown_if_the_loader_has_no_length() -> None:
    endless = Feed(Sums(), seed=0, accumulate=1, limit=None)
    endless.task.train_loader = (batch for batch in [1])
    assert limits_of(endless, "3ep") == TrainingLimits(3, None)
    assert limits_of(endless, "3st") == TrainingLimits(None, 3)
    assert limits_of(endless, "3sa") == TrainingLimits(None, None)
    listed = Feed(Sums(), seed=0, accumulate=1, limit=None)
    listed.task.train_loader = list(listed.task.train_loader)
    assert limits_of(listed, "40sa") == TrainingLimits(None, None)


PASS = EpochSize(
    accumulate=2, batches=5, batch_size=4, num_samples=19
)  # three steps, the last one short


def test_a_position_may_lie_within_an_epoch() -> None:
    table = [
        (TrainingPosition(), "2st", TrainingPosition(2, 0, 4)),
        (TrainingPosition(), "3st", TrainingPosition(3, 1, 0)),
        (TrainingPosition(2, 0, 4), "1ep", TrainingPosition(3, 1, 0)),
        (TrainingPosition(2, 0, 4), "2ep", TrainingPosition(6, 2, 0)),
        (TrainingPosition(1, 0, 2), "3st", TrainingPosition(4, 1, 2)),
        (TrainingPosition(1, 0, 2), "11sa", TrainingPosition(3, 1, 0)),
        (TrainingPosition(1, 0, 2), "12sa", TrainingPosition(4, 1, 2)),
        (TrainingPosition(1, 0, 2), "31sa", TrainingPosition(7, 2, 2)),
        (TrainingPosition(1, 0, 2), "1h", TrainingPosition(None, None, None)),
        (TrainingPosition(1, None, None), "3st", TrainingPosition(4, None, None)),
        (TrainingPosition(1, None, None), "3ep", TrainingPosition(None, None, 0)),
    ]
    found = [start.after(parse_duration(duration), PASS) for start, duration, _ in table]
    assert found == [end for _, _, end in table]


def test_another_batch_size_gives_another_number_of_batches() -> None:
    table: list[tuple[int, dict[str, Any], int | None]] = [
        (8, {}, 3),
        (8, {"drops_last": True}, 2),
        (2, {"limit": 4}, 4),
        (8, {"num_samples": None}, None),
    ]
    found = [replace(PASS, **options).with_batch_size(size).batches for size, options, _ in table]
    assert found == [batches for _, _, batches in table]


def weighted() -> DataLoader[Any]:
    sampler = WeightedRandomSampler(torch.ones(20).tolist(), num_samples=100)
    return DataLoader(numbers(20), batch_size=5, sampler=sampler)


def test_a_length_in_samples_predicts_the_steps_that_are_taken() -> None:
    table: list[tuple[DataLoader[Any], str, int, dict[str, int]]] = [
        (weighted(), "100sa", 20, {}),
        (weighted(), "260sa", 52, {}),
        (DataLoader(numbers(20), batch_size=8, drop_last=True), "40sa", 5, {}),
        (DataLoader(numbers(20), batch_size=8), "29sa", 5, {}),
        (DataLoader(numbers(26), batch_size=8), "60sa", 5, {"accumulate": 3}),
        (DataLoader(numbers(80), batch_size=8), "80sa", 6, {"accumulate": 2, "limit": 5}),
        (DataLoader(numbers(80), batch_size=8), "81sa", 7, {"accumulate": 2, "limit": 5}),
    ]
    for loader, duration, steps, options in table:
        task = Sums(val=0)
        task.train_loader = loader
        accumulate, limit = options.get("accumulate", 1), options.get("limit")
        feed = Feed(task, seed=0, accumulate=accumulate, limit=limit)
        run = make_run(task, for_=duration, limit_batches=limit, optim={"accumulate": accumulate})
        assert (limits_of(feed, duration).steps, fit(run).steps) == (steps, steps), duration


class Stream(IterableDataset[Tensor]):
    def __len__(self) -> int:
        return 20

    def __iter__(self) -> Iterator[Tensor]:
        return iter(torch.zeros(20))


def test_the_samples_of_a_stream_are_unknown_with_several_workers() -> None:
    task = Sums()
    task.train_loader = DataLoader(Stream(), batch_size=8)
    feed = Feed(task, seed=0, accumulate=1, limit=None)
    assert feed.samples_per_epoch == 20
    task.train_loader = DataLoader(Stream(), batch_size=8, num_workers=2)
    assert feed.samples_per_epoch is None


def test_every_length_ends_the_run_with_its_own_reason() -> None:
    table = [
        ("2ep", "max_epochs", 10),
        ("7st", "max_steps", 7),
        ("10sa", "max_samples", 3),
        ("0.001s", "max_time", None),
    ]
    for length, reason, steps in table:
        result = fit(make_run(for_=length))
        assert (result.status, result.reason) == ("finished", reason)
        assert steps in (None, result.steps), length


def test_samples_are_counted_if_the_batch_size_is_unknown() -> None:
    task = Sums()
    task.train_loader = list(task.train_loader)
    assert fit(make_run(task, for_="10sa")).steps == 3


def test_a_target_ends_the_run_when_it_is_reached() -> None:
    task = Scored(0.1, math.nan, 0.95, 0.99)
    result = fit(make_run(task, for_="9ep", until="val/score >= 0.9", sanity_batches=0))
    assert (result.status, result.reason, result.epochs) == ("finished", "target", 3)


def test_a_target_ends_the_run_after_the_epoch_that_reaches_it() -> None:
    result = fit(make_run(for_="9ep", until="train/loss <= 1e9"))
    assert (result.reason, result.epochs) == ("target", 1)
    result = fit(make_run(for_="2ep", until="val/mae <= -1"))
    assert (result.reason, result.epochs) == ("max_epochs", 2)


def test_a_target_that_no_evaluation_measures_is_an_error_before_the_first_step() -> None:
    with pytest.raises(TaskError, match=r"train\.until: no metric is named 'val/nae'"):
        fit(make_run(for_="2ep", until="val/nae <= 1"))


def test_a_resumed_run_reaches_its_target_bit_for_bit_and_keeps_one_that_was_reached() -> None:
    def build(settings: dict[str, Any]) -> Run:
        return make_run(
            Sums(8, batch_size=4), for_="9ep", until="train/loss <= 0.8", setting=settings
        )

    whole = follow(build)
    assert 1 < len(whole.states) < 18
    for state in whole.states:
        assert_same(whole, resume(build, state), state)


class Unsized:
    """Batches of a loader without a length."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loader)


def unsized() -> Sums:
    task = Sums()
    task.train_loader = Unsized(task.train_loader)  # type: ignore[assignment]  # any iterable
    return task


def evaluated_steps(task: Sums | None = None, **options: Any) -> list[int]:
    writer = Points()
    fit(make_run(task, sanity_batches=0, setting={"writer": writer}, **options))
    return [step for step, points in writer.points if "val/mae" in points]


def test_evaluations_follow_the_length_of_the_run() -> None:
    for make, length, expected in (
        (Sums, "3ep", [5, 10, 15]),
        (Sums, "40st", [*range(2, 41, 2)]),
        (Sums, "47st", [*range(3, 46, 3), 47]),
        (Sums, "160sa", [*range(2, 41, 2)]),
        (Sums, "102st", [*range(5, 101, 5), 102]),  # an epoch has five steps, a twentieth six
        (
            unsized,
            "47st",
            [3, 5, 8, 10, 13, 15, 18, 20, 23, 25, 28, 30, 33, 35, 38, 40, 43, 45, 47],
        ),
        (unsized, "32sa", [1, 2, 3, 4, 5, 6, 7, 8]),
    ):
        assert evaluated_steps(make(), for_=length) == expected, (make, length)


def test_evaluations_of_a_run_that_ends_by_time_come_after_a_twentieth_of_it() -> None:
    class Ticking(Hook):
        """Lets two seconds pass in each step."""

        def setup(self, run: Run) -> None:
            self.hands = Hands()
            run.clock.now = self.hands
            run.clock.start()

        def step_end(self, run: Run) -> None:
            self.hands.seconds += 2.0
            engine_run(run).plan.wake()

    found = evaluated_steps(Sums(120), for_="2min", hooks=(Ticking(),))  # of 30 steps an epoch
    assert found == [*range(3, 31, 3), *range(33, 61, 3)]


def test_what_the_config_says_about_evaluations_holds() -> None:
    for written, expected in (("30st", [30]), ("1ep", [5, 10, 15, 20, 25, 30]), (0, [])):
        assert evaluated_steps(for_="33st", eval_every=written) == expected, written


def test_a_resumed_run_evaluates_at_the_same_steps() -> None:
    for make in (Sums, unsized):

        def build(given: dict[str, Any], make: Any = make) -> Run:
            return make_run(make(), for_="23st", setting=given)

        whole = follow(build)
        for state in whole.states[3::6]:
            assert_same(whole, resume(build, state), state)
