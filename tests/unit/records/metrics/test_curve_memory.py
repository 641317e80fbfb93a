"""Tests of curves that a server keeps in memory."""

from __future__ import annotations

import shutil
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from epochal.records.metrics import curve_cache, pyramid
from epochal.records.metrics.curve_cache import RunCurves, zoom, zoom_curve
from epochal.records.metrics.curve_memory import CurveMemory
from epochal.records.metrics.points import MetricWriter

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.records.metrics.curve_cache import Zoom

RANGES = [(None, None), (100, 900), (100, 200), (2000, 3000), (5, 5)]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyramid, "BLOCK_SIZE", 4)
    monkeypatch.setattr(curve_cache, "SMALL_FILE_BYTES", 0)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    write_points(folder, 0, 1000)
    return folder


def write_points(folder: Path, start: int, end: int) -> None:
    writer = MetricWriter(folder)
    for step in range(start, end):
        writer.log({"loss": float(step % 37), "acc": 0.5}, step)
    writer.close()


def ask(memory: CurveMemory, folder: Path, first: int | None, last: int | None) -> list[object]:
    def zoom_in(curves: RunCurves) -> Zoom:
        return zoom_curve(curves.get("loss"), first, last, 10, is_even=False)

    return to_plain(memory.query(folder, zoom_in))


def to_plain(found: Zoom) -> list[object]:
    return [one.tolist() for one in (found.steps, found.low, found.high, found.mean, found.count)]


def test_answers_are_those_of_the_files(run_dir: Path) -> None:
    memory = CurveMemory()
    for first, last in [*RANGES, *RANGES]:
        expected = to_plain(zoom(run_dir, "loss", first, last, 10, is_even=False))
        assert ask(memory, run_dir, first, last) == expected, (first, last)


def test_known_parts_are_not_read_again(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = CurveMemory()
    before = ask(memory, run_dir, 100, 900)
    shutil.rmtree(run_dir / "cache")
    monkeypatch.setattr(curve_cache, "query_curves", None)
    assert ask(memory, run_dir, 100, 900) == before


def test_new_points_and_a_lost_cache_are_noticed(run_dir: Path) -> None:
    memory = CurveMemory()
    ask(memory, run_dir, None, None)
    write_points(run_dir, 1000, 1200)
    assert sum(ask(memory, run_dir, None, None)[4]) == 1200  # type: ignore[call-overload]
    for path in (run_dir / "cache").iterdir():
        path.write_bytes(b"damaged" * 100)
    expected = to_plain(zoom(run_dir, "loss", 300, 340, 10))
    assert ask(memory, run_dir, 300, 340)[:3] == expected[:3]


def test_memory_is_limited(run_dir: Path, tmp_path: Path) -> None:
    memory = CurveMemory(max_bytes=8000)
    others = [shutil.copytree(run_dir, tmp_path / str(number)) for number in range(6)]
    for folder in others:
        ask(memory, folder, None, None)
        assert memory._num_bytes == sum(one.num_bytes for one in memory._kept.values()) <= 8000
    assert 0 < len(memory._kept) < 6
    assert others[-1] in memory._kept


def test_small_runs_are_not_kept(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curve_cache, "SMALL_FILE_BYTES", 1 << 20)
    memory = CurveMemory()
    assert ask(memory, run_dir, 5, 5) == [[5], [5.0], [5.0], [5.0], [1]]
    assert not memory._kept


def test_many_threads_get_the_same_answers(run_dir: Path) -> None:
    memory, found = CurveMemory(), []
    expected = [ask(CurveMemory(), run_dir, first, last) for first, last in RANGES]

    def work() -> None:
        found.append([ask(memory, run_dir, first, last) for first, last in RANGES])

    threads = [Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 6
