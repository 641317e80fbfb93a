"""Two trainings that alternate step by step, each with its own time."""

from __future__ import annotations

import importlib
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def turns() -> Any:
    """The module, which is in no package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("turns")
    del sys.modules["turns"]


def training(side: Any, log: list[str], name: str, *, passes: int, fails_at: int = -1) -> Any:
    def work() -> None:
        for number in range(passes):
            if number == fails_at:
                raise ValueError(name)
            side.tick()
            log.append(f"{name}{number}")

    return work


def test_each_pass_of_one_is_followed_by_one_of_the_other(turns: Any) -> None:
    log: list[str] = []
    one, other = turns.Side((1, 3)), turns.Side((1, 3))
    turns.train_in_turns(
        (one, training(one, log, "a", passes=4)), (other, training(other, log, "b", passes=4))
    )
    assert log == ["a0", "b0", "a1", "b1", "a2", "b2", "a3", "b3"]
    assert (one.count, other.count) == (4, 4)
    assert one.wall > 0
    assert other.wall > 0


def test_other_side_continues_when_one_is_done(turns: Any) -> None:
    log: list[str] = []
    one, other = turns.Side((1, 2)), turns.Side((1, 2))
    turns.train_in_turns(
        (one, training(one, log, "a", passes=2)), (other, training(other, log, "b", passes=4))
    )
    assert sorted(log) == ["a0", "a1", "b0", "b1", "b2", "b3"]


@pytest.mark.parametrize("who", ["a", "b"])
def test_error_of_either_side_is_raised_without_deadlock(turns: Any, who: str) -> None:
    log: list[str] = []
    one, other = turns.Side((1, 2)), turns.Side((1, 2))
    fails_at = {"a": -1, "b": -1, who: 2}
    before = threading.enumerate()
    with pytest.raises(ValueError, match=who):
        turns.train_in_turns(
            (one, training(one, log, "a", passes=4, fails_at=fails_at["a"])),
            (other, training(other, log, "b", passes=4, fails_at=fails_at["b"])),
        )
    assert threading.enumerate() == before


def test_only_passes_between_the_marks_count(turns: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    side, now = turns.Side((1, 3)), iter(range(1000))
    for clock in ("perf_counter", "thread_time", "process_time"):
        monkeypatch.setattr(turns.time, clock, lambda: 0.0)
    monkeypatch.setattr(turns.time, "perf_counter", lambda: float(next(now)))
    side.train(training(side, [], "a", passes=6))
    assert side.wall == 2  # from pass 1 to pass 2 and from there to pass 3, one tick each
