"""Tests of how long a run lasts."""

from __future__ import annotations

import pytest
from torch.utils.data import DataLoader

from engine.parts import Sums, fit, make_run, numbers
from epochal.config.duration import parse_duration
from epochal.engine.feed import Feed
from epochal.engine.limits import Limits, find_limits


def feed(*, accumulate: int = 1, drop_last: bool = False) -> Feed:
    task = Sums(20, batch_size=8)
    task.train_loader = DataLoader(numbers(20), batch_size=8, drop_last=drop_last)
    return Feed(task, seed=0, accumulate=accumulate, limit=None)


@pytest.mark.parametrize(
    ("duration", "accumulate", "limits"),
    [
        ("4ep", 1, Limits(4, 12)),
        ("4ep", 2, Limits(4, 8)),
        ("7st", 1, Limits(3, 7)),
        ("40sa", 1, Limits(2, 6)),
        ("29sa", 1, Limits(2, 5)),
        ("10min", 1, Limits(None, None, 600)),
    ],
)
def test_totals_follow_from_the_loader(duration: str, accumulate: int, limits: Limits) -> None:
    assert find_limits(feed(accumulate=accumulate), parse_duration(duration), None) == limits


def test_the_shorter_time_counts() -> None:
    limits = find_limits(feed(), parse_duration("1h"), parse_duration("10s"))
    assert limits.seconds == 10


def test_totals_are_unknown_where_the_loader_does_not_tell() -> None:
    endless = Feed(Sums(), seed=0, accumulate=1, limit=None)
    endless.task.train_loader = (batch for batch in [1])
    assert find_limits(endless, parse_duration("3ep"), None) == Limits(3, None)
    assert find_limits(endless, parse_duration("3st"), None) == Limits(None, 3)
    dropping = feed(drop_last=True)
    assert find_limits(dropping, parse_duration("40sa"), None) == Limits(None, None)


@pytest.mark.parametrize(
    ("duration", "reason", "steps"),
    [("2ep", "max_epochs", 10), ("7st", "max_steps", 7), ("10sa", "max_samples", 3)],
)
def test_reaching_the_duration_finishes_the_run(duration: str, reason: str, steps: int) -> None:
    result = fit(make_run(for_=duration))
    assert (result.status, result.reason, result.steps) == ("finished", reason, steps)


def test_samples_are_counted_also_when_the_batch_size_is_unknown() -> None:
    task = Sums()
    task.train_loader = list(task.train_loader)
    assert fit(make_run(task, for_="10sa")).steps == 3
