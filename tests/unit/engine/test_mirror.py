"""A mirror: what its thread writes, what it leaves out, and what becomes of it when it fails."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from epochal.engine import mirror as module
from epochal.engine.every import Every
from epochal.engine.mirror import Entry, Mirror, Sink, importing, is_of_steps, thin
from epochal.records.folder import RecordOptions, create_run_folder
from epochal.records.writer import RunWriter

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

EACH = Every(1, "st")


class Kept(Sink):
    """Keeps what it is given."""

    def __init__(self, known: dict[str, int] | None = None) -> None:
        self.known = known or {}
        self.entries: list[Entry] = []
        self.threads: set[str] = set()
        self.closed: list[bool] = []

    def write(self, entries: list[Entry]) -> None:
        self.entries += entries
        self.threads.add(threading.current_thread().name)

    def read_known(self, names: Iterable[str]) -> dict[str, int]:
        assert set(names) >= set(self.known)
        return self.known

    def close(self, *, has_failed: bool) -> None:
        self.closed.append(has_failed)

    @property
    def points(self) -> list[tuple[int, dict[str, float]]]:
        return [(one.step, dict(one.values)) for one in self.entries]


def make(path: Path, sink: Sink, *, is_rewritten: bool = True, every: Every = EACH) -> Mirror:
    return Mirror(path, lambda: sink, is_rewritten=is_rewritten, every=every)


def test_points_are_written_in_order_by_a_thread_of_its_own(tmp_path: Path) -> None:
    sink = Kept()
    mirror = make(tmp_path, sink)
    before = time.time()
    mirror.put({"a": 1.0, "b": 2.0}, 3)
    mirror.put({"a": 0.5}, 4)
    assert mirror.close(10)
    assert sink.points == [(3, {"a": 1.0, "b": 2.0}), (4, {"a": 0.5})]
    assert sink.threads == {"mirror"}
    assert before <= sink.entries[0].time <= time.time()
    assert sink.closed == [False]


def test_the_end_of_a_failed_run_is_told(tmp_path: Path) -> None:
    sink = Kept()
    mirror = make(tmp_path, sink)
    mirror.put({"a": 1.0}, 1)
    mirror.close(10, has_failed=True)
    assert sink.closed == [True]


def test_without_points_nothing_is_opened(tmp_path: Path) -> None:
    mirror = Mirror(tmp_path, lambda: 1 / 0, is_rewritten=True, every=EACH)  # type: ignore[arg-type,return-value]
    assert mirror.close(10)
    assert mirror.failure is None


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3)])
def test_whatever_is_raised_is_kept(tmp_path: Path, error: BaseException) -> None:
    def fail() -> Sink:
        raise error

    mirror = Mirror(tmp_path, fail, is_rewritten=True, every=EACH)
    mirror.put({"a": 1.0}, 1)
    assert mirror.close(10)
    assert mirror.failure is error


def test_a_sink_that_hangs_keeps_nobody(tmp_path: Path) -> None:
    may_end = threading.Event()

    class Hanging(Sink):
        def write(self, entries: list[Entry]) -> None:
            may_end.wait()

        def read_known(self, names: Iterable[str]) -> dict[str, int]:
            return {}

        def close(self, *, has_failed: bool) -> None:
            pass

    mirror = make(tmp_path, Hanging())
    mirror.put({"a": 1.0}, 1)
    assert not mirror.close(0.01)
    may_end.set()


def test_what_waits_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 3)
    monkeypatch.setattr(module, "GATHER_SECONDS", 1000)
    sink = Kept()
    mirror = make(tmp_path, sink)
    for step in range(5):
        mirror.put({"a": 1.0}, step)
    mirror.close(10)
    assert (len(sink.entries), mirror.lost) == (3, 2)


@pytest.fixture
def twice(tmp_path: Path) -> Path:
    """The record of a run that was killed at step 5 and goes on from step 3."""
    folder = create_run_folder(RecordOptions(log_dir=tmp_path), project="p", tag="t")
    with_points = {"step": 3, "kept_points": 4}
    first = RunWriter(folder)
    for step in (1, 2, 3):
        first.log({"lr": step / 10}, step)
    first.log({"val/acc": 0.5}, 3)
    first.log({"val/acc": 0.6}, 3)
    for step in (4, 5):
        first.log({"lr": step / 10}, step)
    attempts = [{"attempt": 0}, {"attempt": 1, "origin": 0, **with_points}]
    first.write_run({"attempts": attempts})
    first.close()
    second = RunWriter(folder, attempt=1)
    second.log({"lr": 0.4}, 4)  # as far as it is when the mirror looks
    second.close()
    return folder.path


def test_a_rewritten_sink_gets_what_still_counts_of_earlier_attempts(twice: Path) -> None:
    sink = Kept()
    mirror = make(twice, sink)
    mirror.go_back(1)
    mirror.put({"lr": 0.4}, 4)
    mirror.close(10)
    assert sink.points == [
        (1, {"lr": 0.1}),
        (2, {"lr": 0.2}),
        (3, {"lr": 0.3}),
        (3, {"val/acc": 0.5}),
        (4, {"lr": 0.4}),
    ]


def test_going_back_opens_another_sink_where_it_is_rewritten(twice: Path) -> None:
    sinks = [Kept(), Kept()]
    waiting = iter(sinks)
    mirror = Mirror(twice, lambda: next(waiting), is_rewritten=True, every=EACH)
    mirror.put({"lr": 0.9}, 9)
    mirror.go_back(1)
    mirror.close(10)
    assert sinks[0].points == [(9, {"lr": 0.9})]
    assert sinks[0].closed == [False]
    assert sinks[1].points[0] == (1, {"lr": 0.1})


def test_a_sink_that_keeps_all_gets_no_step_twice_and_misses_none(twice: Path) -> None:
    sink = Kept({"lr": 2})  # what the first attempt had sent when it was killed
    mirror = make(twice, sink, is_rewritten=False)
    mirror.go_back(1)
    for step in (4, 5):
        mirror.put({"lr": step / 10}, step)
    mirror.close(10)
    assert sink.points == [
        (3, {"lr": 0.3}),
        (3, {"val/acc": 0.5}),
        (4, {"lr": 0.4}),
        (5, {"lr": 0.5}),
    ]
    assert sink.closed == [False]


def test_what_a_sink_has_beyond_the_checkpoint_is_not_sent_again(twice: Path) -> None:
    sink = Kept({"lr": 5, "val/acc": 3})
    mirror = make(twice, sink, is_rewritten=False)
    mirror.go_back(1)
    for step in (4, 5, 6):
        mirror.put({"lr": step / 10, "own": 1.0}, step)
    mirror.close(10)
    assert sink.points == [(4, {"own": 1.0}), (5, {"own": 1.0}), (6, {"lr": 0.6, "own": 1.0})]


@pytest.mark.parametrize(
    ("name", "is_it"),
    [("train/loss", True), ("lr", True), ("lr/head", True), ("train/epoch/loss", False)],
)
def test_points_of_training_are_known_by_their_names(name: str, is_it: bool) -> None:
    assert is_of_steps({"own": 1.0, name: 2.0}) == is_it


@pytest.mark.parametrize(
    ("every", "steps"),
    [
        (Every(4, "st"), [6, 9, 12]),
        (Every(1, "st"), [3, 6, 9, 12]),
        (Every(1, "ep"), [3, 6, 9, 12]),
        (Every.NEVER, []),
    ],
)
def test_one_point_of_training_is_taken_in_each_period(every: Every, steps: list[int]) -> None:
    points = [Entry(step, 0.0, {"lr": 0.1}) for step in (3, 6, 9, 12)]
    rare = Entry(7, 0.0, {"val/acc": 1.0})
    found = list(thin([*points, rare], every))
    assert [one.step for one in found] == [*steps, 7]


def test_no_process_is_forked_while_a_package_is_imported() -> None:
    entered, may_end = threading.Event(), threading.Event()

    def load() -> None:
        with importing():
            entered.set()
            may_end.wait()

    forked: list[int] = []

    def fork() -> None:
        number = os.fork()
        if number == 0:
            os._exit(0)
        os.waitpid(number, 0)
        forked.append(number)

    loading, forking = threading.Thread(target=load), threading.Thread(target=fork)
    loading.start()
    entered.wait()
    forking.start()
    assert not forked
    may_end.set()
    forking.join()
    loading.join()
    assert len(forked) == 1
    with importing():  # the lock is free again
        pass
