"""Tests of epochal.records.metrics.curve_cache."""

from __future__ import annotations

import json
import shutil
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

from epochal import durable
from epochal.records.metrics import curve_cache as columns
from epochal.records.metrics import pyramid
from epochal.records.metrics.curve_cache import (
    CACHE_DIR,
    CACHE_STATE_FILE,
    RunCurves,
    build_curve_cache,
    query_curves,
)
from epochal.records.metrics.points import MetricWriter, read_metric_points
from epochal.records.metrics.summary import summarise_points, summarise_series

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyramid, "BLOCK_SIZE", 4)
    monkeypatch.setattr(columns, "SMALL_FILE_BYTES", 0)
    monkeypatch.setattr("epochal.records.metrics.summary.SMALL_FILE_BYTES", 0)
    monkeypatch.setattr(columns, "_CHUNK_ROWS", 7)


@pytest.fixture
def writer(tmp_path: Path) -> MetricWriter:
    return MetricWriter(tmp_path)


def log(writer: MetricWriter, steps: range, *, attempt: int = 0) -> None:
    for step in steps:
        points = {"loss": attempt + step / 100}
        writer.log(points | ({"acc": -step} if step % 3 == 0 else {}), step, attempt=attempt)


def read_all(folder: Path) -> dict[str, list[list[float]]]:
    """Every point of every metric, by way of the cache."""

    def ask(curves: RunCurves) -> dict[str, list[list[float]]]:
        found = {name: curves.get(name) for name in curves.names}
        return {
            name: [column.tolist() for column in curve.read(0, curve.count)]
            for name, curve in found.items()
        }

    return query_curves(folder, ask)


def assert_right(folder: Path) -> None:
    """What the cache says is what the points say."""
    points = read_metric_points(folder)
    names = set(points.names.values())
    expected = {name: [column.tolist() for column in points.series(name)] for name in names}
    assert read_all(folder) == expected
    assert summarise_series(folder) == summarise_points(points)


def is_cached(folder: Path) -> bool:
    return (folder / CACHE_DIR / CACHE_STATE_FILE).exists()


def rows_in(folder: Path) -> int:
    found = durable.decode_line((folder / CACHE_DIR / CACHE_STATE_FILE).read_bytes())
    assert found is not None
    return int(found["rows"])


def test_progress_is_reported_while_points_are_new(tmp_path: Path, writer: MetricWriter) -> None:
    log(writer, range(10))
    messages: list[str] = []
    build_curve_cache(tmp_path, messages.append)
    assert messages == [f"{done} of 14 points sorted for charts" for done in (0, 7)]
    assert is_cached(tmp_path)
    messages.clear()
    query_curves(tmp_path, lambda curves: curves.names, messages.append)
    assert messages == []


def test_the_cache_is_extended_while_a_run_logs(
    tmp_path: Path, writer: MetricWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    log(writer, range(20))
    assert_right(tmp_path)
    looked_at = []
    real = columns.mask_valid_rows
    monkeypatch.setattr(
        columns, "mask_valid_rows", lambda rows: [looked_at.append(len(rows)), real(rows)][1]
    )
    log(writer, range(20, 23))
    assert_right(tmp_path)
    assert sum(looked_at) == 4  # only what is new
    log(writer, range(10, 15))  # steps that were known
    assert_right(tmp_path)
    assert rows_in(tmp_path) == writer.num_points


def test_an_incomplete_row_is_read_later(tmp_path: Path, writer: MetricWriter) -> None:
    log(writer, range(10))
    path = tmp_path / "metrics.bin"
    data = path.read_bytes()
    for size in (len(data) - 36, len(data) - 20):
        path.write_bytes(data[:size])
        assert_right(tmp_path)
    path.write_bytes(data[:-36] + bytes(36))
    assert_right(tmp_path)
    path.write_bytes(data)
    assert_right(tmp_path)
    assert rows_in(tmp_path) == len(data) // 36


def test_damaged_rows_and_an_invalid_state_are_ignored(
    tmp_path: Path, writer: MetricWriter
) -> None:
    log(writer, range(30))
    path = tmp_path / "metrics.bin"
    data = bytearray(path.read_bytes())
    for position in (0, 36 * 9 + 4, 36 * 20 + 35):
        data[position] ^= 1
    path.write_bytes(data)
    assert_right(tmp_path)
    for text in ("", "null", "[]", '{"format":1}', '{"roots":{"x":[1,2]}}', "\0"):
        (tmp_path / CACHE_DIR / CACHE_STATE_FILE).write_text(text)
        assert_right(tmp_path)


def test_small_runs_have_no_cache(
    tmp_path: Path, writer: MetricWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "SMALL_FILE_BYTES", 1 << 20)
    monkeypatch.setattr("epochal.records.metrics.summary.SMALL_FILE_BYTES", 1 << 20)
    assert read_all(tmp_path) == read_all(tmp_path / "nowhere") == {}
    log(writer, range(10))
    assert_right(tmp_path)
    messages: list[str] = []
    build_curve_cache(tmp_path, messages.append)
    build_curve_cache(tmp_path / "nowhere", messages.append)
    assert messages == []
    assert not (tmp_path / CACHE_DIR).exists()


def test_the_cache_may_be_deleted_at_any_time(tmp_path: Path, writer: MetricWriter) -> None:
    log(writer, range(30))
    assert_right(tmp_path)
    for path in sorted((tmp_path / CACHE_DIR).iterdir()):
        path.unlink()
        assert_right(tmp_path)
    shutil.rmtree(tmp_path / CACHE_DIR)
    assert_right(tmp_path)


def test_damage_to_the_cache_changes_no_result(tmp_path: Path, writer: MetricWriter) -> None:
    log(writer, range(12))
    assert_right(tmp_path)
    rng = np.random.default_rng(0)
    for path in sorted((tmp_path / CACHE_DIR).iterdir()):
        for _ in range(8):
            data = bytearray(path.read_bytes())
            data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
            path.write_bytes(data)
            assert_right(tmp_path)
        path.write_bytes(b"")
        assert_right(tmp_path)


def test_a_cache_of_another_format_or_of_other_points_is_rebuilt(
    tmp_path: Path, writer: MetricWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    log(writer, range(12))
    with monkeypatch.context() as patch:
        patch.setattr(columns, "_FORMAT", 0)
        assert_right(tmp_path)
    assert_right(tmp_path)
    for num_others in (5, 12, 30):
        folder = tmp_path / str(num_others)
        folder.mkdir()
        other = MetricWriter(folder)
        for step in range(num_others):
            other.log({"loss": 5.0, "acc": 1.0}, step)
        for name in ("metrics.bin", "series.jsonl"):
            shutil.copy(folder / name, tmp_path / name)
        assert_right(tmp_path)


def write_attempts(folder: Path, *attempts: dict[str, object]) -> None:
    (folder / "run.json").write_text(json.dumps({"attempts": attempts}))


def test_curves_have_the_current_points_of_each_attempt(
    tmp_path: Path, writer: MetricWriter
) -> None:
    first: dict[str, object] = {"attempt": 0}
    write_attempts(tmp_path, first)
    log(writer, range(10))
    kept = writer.num_points
    log(writer, range(10, 20))
    assert_right(tmp_path)
    again = {"attempt": 1, "origin": 0, "step": 9, "kept_points": kept}
    write_attempts(tmp_path, first, again)
    log(writer, range(10, 15), attempt=1)
    assert_right(tmp_path)
    assert read_all(tmp_path)["loss"][0] == list(range(15))
    third = {"attempt": 2, "origin": 0, "step": 5}
    write_attempts(tmp_path, first, again, third)
    log(writer, range(6, 9), attempt=2)
    assert_right(tmp_path)
    assert is_cached(tmp_path)


def test_an_unlisted_attempt_is_read_from_all_points(tmp_path: Path, writer: MetricWriter) -> None:
    log(writer, range(10))
    assert_right(tmp_path)
    log(writer, range(5, 8), attempt=1)
    assert_right(tmp_path)
    assert read_all(tmp_path)["loss"][0] == list(range(8))


def test_a_metric_with_two_series_numbers_is_one_curve(
    tmp_path: Path, writer: MetricWriter
) -> None:
    log(writer, range(10))
    path = tmp_path / "series.jsonl"
    good = path.read_bytes()
    path.write_bytes(good.replace(b'"loss"', b'"lo$s"'))
    log(MetricWriter(tmp_path), range(10, 20))
    path.write_bytes(good + path.read_bytes().splitlines(keepends=True)[-1])
    assert len(read_metric_points(tmp_path).names) == 3
    assert_right(tmp_path)


def test_a_read_only_folder_is_read_without_a_cache(
    tmp_path: Path, writer: MetricWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    log(writer, range(10))

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(durable, "make_inner_dir", refuse)
    assert_right(tmp_path)
    assert not is_cached(tmp_path)
    monkeypatch.undo()
    (tmp_path / CACHE_DIR).write_text("a file in its place")
    assert_right(tmp_path)


def test_concurrent_readers_get_the_same(tmp_path: Path, writer: MetricWriter) -> None:
    log(writer, range(40))
    expected = {name: len(read_metric_points(tmp_path).series(name)[0]) for name in ("loss", "acc")}
    found: list[object] = []

    def read() -> None:
        for _ in range(3):
            shutil.rmtree(tmp_path / CACHE_DIR, ignore_errors=True)
            found.append({name: len(steps) for name, (steps, _) in read_all(tmp_path).items()})

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 12
