"""Tests of the mirror that copies points and media in a thread."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from epochal.engine.interfaces.every import Every
from epochal.engine.tracking import mirror as module
from epochal.engine.tracking.mirror import (
    Entry,
    Mirror,
    Sink,
    fork_safe_import,
    has_step_means,
    thin_entries,
)
from epochal.records.folder.folder import RecordOptions, RunFolder, create_run_folder
from epochal.records.folder.media import Media, save_media
from epochal.records.folder.writer import RunWriter

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

EACH = Every(1, "st")


class Kept(Sink):
    """Keeps what it is given."""

    def __init__(self, known: dict[str, int] | None = None) -> None:
        self.known = known or {}
        self.entries: list[Entry] = []
        self.shown: list[tuple[str, int]] = []
        self.order: list[str] = []
        self.threads: set[str] = set()
        self.closed: list[bool] = []

    def write(self, entries: list[Entry]) -> None:
        self.entries += entries
        self.order += [f"points {one.step}" for one in entries]
        self.threads.add(threading.current_thread().name)

    def show(self, media: Media) -> None:
        if media.name == "broken":
            raise ValueError("what is that?")
        self.shown.append((media.path.read_text(), media.step))
        self.order.append(f"media {media.step}")

    def read_known(self, names: Iterable[str]) -> dict[str, int]:
        return self.known

    def has(self, media: Media) -> bool:
        return media.step <= self.known.get(media.title, -1)

    def close(self, *, has_failed: bool) -> None:
        self.closed.append(has_failed)

    @property
    def points(self) -> list[tuple[int, dict[str, float]]]:
        return [(one.step, dict(one.values)) for one in self.entries]


def make(path: Path, sink: Sink, *, is_rewritten: bool = True, every: Every = EACH) -> Mirror:
    return Mirror(path, lambda: sink, is_rewritten=is_rewritten, every=every)


def test_points_are_written_in_order_by_a_thread(tmp_path: Path) -> None:
    sink = Kept()
    mirror = make(tmp_path, sink)
    before = time.time()
    mirror.put({"a": 1.0, "b": 2.0}, 3)
    mirror.put({"a": 0.5}, 4)
    assert mirror.close(10, has_failed=True, on_wait=lambda: pytest.fail("it is quick"))
    assert sink.points == [(3, {"a": 1.0, "b": 2.0}), (4, {"a": 0.5})]
    assert sink.threads == {"mirror"}
    assert before <= sink.entries[0].time <= time.time()
    assert sink.closed == [True]


def test_without_points_nothing_is_opened(tmp_path: Path) -> None:
    mirror = Mirror(tmp_path, lambda: 1 / 0, is_rewritten=True, every=EACH)  # type: ignore[arg-type,return-value]
    assert mirror.close(10)
    assert mirror.failure is None


def test_any_error_ends_the_mirror_only(tmp_path: Path) -> None:
    for error in (ValueError("no"), SystemExit(3)):

        def fail(error: BaseException = error) -> Sink:
            raise error

        mirror = Mirror(tmp_path, fail, is_rewritten=True, every=EACH)
        mirror.put({"a": 1.0}, 1)
        assert mirror.close(10)
        assert mirror.failure is error


def test_close_does_not_wait_for_a_sink_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "QUIET_SECONDS", 0.0)
    may_end = threading.Event()

    class Hanging(Kept):
        def write(self, entries: list[Entry]) -> None:
            may_end.wait()

    mirror = make(tmp_path, Hanging())
    mirror.put({"a": 1.0}, 1)
    waits: list[bool] = []
    assert not mirror.close(0.01, on_wait=lambda: waits.append(True))
    assert waits == [True]
    assert mirror.close(10, on_wait=may_end.set)


def test_the_queue_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_QUEUED", 3)
    monkeypatch.setattr(module, "GATHER_SECONDS", 1000)
    sink = Kept()
    mirror = make(tmp_path, sink)
    for step in range(5):
        mirror.put({"a": 1.0}, step)
    mirror.put_media(show(tmp_path, "note", 5))
    mirror.close(10)
    assert (len(sink.entries), sink.shown, mirror.lost) == (3, [], 3)


@pytest.fixture
def twice(tmp_path: Path) -> Path:
    """The record of a run that was killed at step 5 and resumed from step 3."""
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
    second.log({"lr": 0.4}, 4)  # the state of the record when the mirror reads it
    second.close()
    return folder.path


def test_a_rewritten_sink_gets_the_valid_points_of_earlier_attempts(twice: Path) -> None:
    sink = Kept()
    mirror = make(twice, sink)
    mirror.start_attempt(1)
    mirror.put({"lr": 0.4}, 4)
    mirror.close(10)
    assert sink.points == [
        (1, {"lr": 0.1}),
        (2, {"lr": 0.2}),
        (3, {"lr": 0.3}),
        (3, {"val/acc": 0.5}),
        (4, {"lr": 0.4}),
    ]


def test_a_kept_sink_gets_no_step_twice_and_misses_none(twice: Path) -> None:
    sink = Kept({"lr": 2})  # what the first attempt had sent when it was killed
    mirror = make(twice, sink, is_rewritten=False)
    mirror.start_attempt(1)
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


def test_points_beyond_the_checkpoint_are_not_sent_again(twice: Path) -> None:
    sink = Kept({"lr": 5, "val/acc": 3})
    mirror = make(twice, sink, is_rewritten=False)
    mirror.start_attempt(1)
    for step in (4, 5, 6):
        mirror.put({"lr": step / 10, "own": 1.0}, step)
    mirror.close(10)
    assert sink.points == [(4, {"own": 1.0}), (5, {"own": 1.0}), (6, {"lr": 0.6, "own": 1.0})]


def show(path: Path, name: str, step: int, *, attempt: int = 0, text: str = "") -> Media:
    """What is kept of a text that a run shows."""
    writer = RunWriter(RunFolder(path), attempt=attempt)
    media = save_media(writer, name, text or f"{name} {step}", step=step)
    writer.close()
    assert media is not None
    return media


def test_media_come_between_points_in_their_order(tmp_path: Path) -> None:
    sink = Kept()
    mirror = make(tmp_path, sink)
    mirror.put({"a": 1.0}, 1)
    mirror.put({"a": 1.0}, 2)
    mirror.put_media(show(tmp_path, "note", 2))
    mirror.put({"a": 1.0}, 3)
    assert mirror.close(10)
    assert sink.order == ["points 1", "points 2", "media 2", "points 3"]
    assert sink.shown == [("note 2", 2)]


def test_a_file_that_cannot_be_shown_is_skipped(tmp_path: Path) -> None:
    sink = Kept()
    mirror = make(tmp_path, sink)
    gone = show(tmp_path, "gone", 1)
    gone.path.unlink()
    for media in (show(tmp_path, "broken", 1), gone, show(tmp_path, "whole", 1)):
        mirror.put_media(media)
    mirror.put({"a": 1.0}, 1)
    assert mirror.close(10)
    assert mirror.failure is None
    assert sink.order == ["media 1", "points 1"]
    assert mirror.unshown is not None
    media, error = mirror.unshown
    assert (media.name, str(error)) == ("broken", "what is that?")


@pytest.fixture
def shown_twice(twice: Path) -> Path:
    """The same record with a text at steps 1, 3 and 5, and again at 4 and 5."""
    for step in (1, 3, 5):
        show(twice, "note", step)
    return twice


def test_a_rewritten_sink_gets_valid_media_once(shown_twice: Path) -> None:
    sink = Kept()
    mirror = make(shown_twice, sink)
    mirror.start_attempt(1)
    for step in (4, 5):
        mirror.put_media(show(shown_twice, "note", step, attempt=1, text=f"again {step}"))
    mirror.close(10)
    assert sink.shown == [("note 1", 1), ("note 3", 3), ("again 4", 4), ("again 5", 5)]
    steps = [int(one.split()[1]) for one in sink.order]
    assert steps == sorted(steps)


def test_a_kept_sink_gets_no_file_twice(shown_twice: Path) -> None:
    sink = Kept({"note/text": 3})  # it was killed before it had sent the one of step 5
    mirror = make(shown_twice, sink, is_rewritten=False)
    mirror.start_attempt(1)
    for step in (4, 5):
        mirror.put_media(show(shown_twice, "note", step, attempt=1))
    mirror.close(10)
    assert [step for _, step in sink.shown] == [4, 5]


def test_training_points_are_recognized_by_name() -> None:
    table = {"train/loss": True, "lr": True, "lr/head": True, "train/epoch/loss": False}
    assert {name: has_step_means({"own": 1.0, name: 2.0}) for name in table} == table


def test_one_training_point_is_kept_in_each_period() -> None:
    table = [
        (Every(4, "st"), [6, 9, 12]),
        (Every(1, "st"), [3, 6, 9, 12]),
        (Every(1, "ep"), [3, 6, 9, 12]),
        (Every.NEVER, []),
    ]
    points = [Entry(step, 0.0, {"lr": 0.1}) for step in (3, 6, 9, 12)]
    for every, steps in table:
        found = list(thin_entries([*points, Entry(7, 0.0, {"val/acc": 1.0})], every))
        assert [one.step for one in found] == [*steps, 7], every


def test_forks_wait_for_imports_in_threads() -> None:
    entered, may_end = threading.Event(), threading.Event()

    def load() -> None:
        with fork_safe_import():
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
    with fork_safe_import():  # the lock is free again
        pass
