"""Tests of epochal.records.metrics.points."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import math
import os
import re
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epochal import durable
from epochal.errors import RecordError
from epochal.records.metrics import points as metrics
from epochal.records.metrics.points import (
    POINT_BYTES,
    POINT_FIELDS,
    MetricWriter,
    read_metric_points,
    read_points,
    read_series,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def writer(tmp_path: Path) -> MetricWriter:
    return MetricWriter(tmp_path)


def test_points_are_read_back_in_order(tmp_path: Path, writer: MetricWriter) -> None:
    writer.log({"train/loss": 0.5, "train/acc": 0.25}, 10)
    writer.log({"train/loss": 0.125}, 20, attempt=3)
    rows = read_points(tmp_path)
    assert rows["series"].tolist() == [0, 1, 0]
    assert rows["attempt"].tolist() == [0, 0, 3]
    assert rows["step"].tolist() == [10, 10, 20]
    assert rows["value"].tolist() == [0.5, 0.25, 0.125]


def test_rows_have_the_documented_layout(tmp_path: Path, writer: MetricWriter) -> None:
    writer.log({"a": 1.5}, -2, attempt=7)
    data = (tmp_path / "metrics.bin").read_bytes()
    assert len(data) == POINT_BYTES == np.dtype(list(POINT_FIELDS)).itemsize
    *head, crc = struct.unpack("<IIqddI", data)
    assert head[:3] == [0, 7, -2]
    assert head[4] == 1.5
    assert crc == zlib.crc32(data[:32])


def test_the_documented_line_reads_the_file(
    tmp_path: Path, writer: MetricWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.log({"a": 1.5}, 1)
    monkeypatch.chdir(tmp_path)
    found = re.search(r"np\.fromfile\(.*?\]\)\)", metrics.__doc__ or "", re.DOTALL)
    assert found is not None
    rows = eval(found.group(), {"np": np})
    assert rows["value"].tolist() == [1.5]


def test_series_are_named_once_in_a_line_of_json(tmp_path: Path, writer: MetricWriter) -> None:
    for step in range(3):
        writer.log({"a": 0.0, "ü/x": 1.0}, step)
    lines = [json.loads(line) for line in (tmp_path / "series.jsonl").read_text().splitlines()]
    assert [(line["id"], line["name"]) for line in lines] == [(0, "a"), (1, "ü/x")]


def test_a_name_is_synced_before_its_first_point(
    tmp_path: Path, writer: MetricWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.log({"a": 0.0}, 0)
    calls: list[tuple[str, str]] = []
    real = durable.system.operations

    def name_of(descriptor: int) -> str:
        return Path(os.readlink(f"/proc/self/fd/{descriptor}")).name  # noqa: PTH115

    def write(descriptor: int, data: bytes | memoryview) -> int:
        calls.append(("write", name_of(descriptor)))
        return real.write(descriptor, data)

    def fsync(descriptor: int) -> None:
        calls.append(("fsync", name_of(descriptor)))
        real.fsync(descriptor)

    monkeypatch.setattr(
        durable.system, "operations", dataclasses.replace(real, write=write, fsync=fsync)
    )
    writer.log({"a": 0.0, "b": 1.0, "c": 2.0}, 1)
    assert calls == [
        *[("write", "series.jsonl"), ("fsync", "series.jsonl")] * 2,
        ("write", "metrics.bin"),
    ]


def test_numpy_is_not_imported_to_write(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from epochal.records.metrics.points import MetricWriter\n"
        f"MetricWriter(pathlib.Path({str(tmp_path)!r})).log({{'a': 1.0}}, 1)\n"
        "sys.exit('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_files_are_created_with_the_first_point_and_opened_again(
    tmp_path: Path, writer: MetricWriter
) -> None:
    writer.log({}, 1)
    writer.sync()
    writer.close()
    assert not list(tmp_path.iterdir())
    assert len(read_points(tmp_path)) == 0
    assert read_metric_points(tmp_path).damage == ()
    for step, points in enumerate(({"a": 1.0}, {"b": 2.0, "a": 3.0})):
        writer.log(points, step)
        writer.close()
    assert read_series(tmp_path, "a")[1].tolist() == [1.0, 3.0]
    assert read_series(tmp_path, "b")[1].tolist() == [2.0]


def test_the_next_process_continues_names_and_cuts_torn_tails(tmp_path: Path) -> None:
    MetricWriter(tmp_path).log({"a": 1.0, "b": 2.0}, 1)
    with (tmp_path / "metrics.bin").open("ab") as file:
        file.write(b"torn")
    with (tmp_path / "series.jsonl").open("ab") as file:
        file.write(b'{"id":2,"na')
    MetricWriter(tmp_path).log({"b": 3.0, "c": 4.0}, 2)
    points = read_metric_points(tmp_path)
    assert points.damage == ()
    assert points.names == {0: "a", 1: "b", 2: "c"}
    assert points.rows["series"].tolist() == [0, 1, 1, 2]


@settings(max_examples=40, deadline=None)
@given(st.one_of(st.binary(max_size=100), st.integers(0, 200).map(bytes)))
def test_a_writer_continues_after_any_tail_of_a_crash(
    tmp_path_factory: pytest.TempPathFactory, tail: bytes
) -> None:
    folder = tmp_path_factory.mktemp("run")
    MetricWriter(folder).log({"a": 1.0, "b": 2.0}, 1)
    with (folder / "metrics.bin").open("ab") as file:
        file.write(tail)
    again = MetricWriter(folder)
    assert again.num_points == 2
    again.log({"b": 3.0}, 2, attempt=1)
    points = read_metric_points(folder)
    assert points.damage == ()
    assert points.rows["value"].tolist() == [1.0, 2.0, 3.0]
    assert again.num_points == 3


def test_the_number_of_a_damaged_name_is_not_reused(tmp_path: Path) -> None:
    MetricWriter(tmp_path).log({"a": 1.0, "b": 2.0}, 1)
    path = tmp_path / "series.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"b"', b'"x"'))
    MetricWriter(tmp_path).log({"c": 3.0}, 2)
    points = read_metric_points(tmp_path)
    assert points.names == {0: "a", 2: "c"}
    assert points.series("c")[1].tolist() == [3.0]
    assert points.damage == (
        "series.jsonl: 1 damaged line left out",
        "series.jsonl: the names of 1 metric lost",
    )


SPECIAL = [math.nan, math.inf, -math.inf, -0.0, 5e-324, 2.0**53 + 1, True, 7, np.float32(0.1)]


def test_all_numbers_are_stored_exactly(tmp_path: Path, writer: MetricWriter) -> None:
    for value in SPECIAL:
        writer.log({"a": value}, 1)
        [stored] = read_series(tmp_path, "a")[1].tolist()
        assert struct.pack("d", stored) == struct.pack("d", float(value))


def test_invalid_values_steps_and_names_are_refused(tmp_path: Path, writer: MetricWriter) -> None:
    bad: list[tuple[Any, Any, Any, str]] = [
        *(
            ("bad", value, 1, r"metric 'bad': cannot be recorded: value .*at step 1\n")
            for value in ("0.5", None, [1.0], 10**400, 1j)
        ),
        *(
            ("a", 1.0, step, f"at step {step!r}\n  log a number at a whole step")
            for step in (2**63, 1.5, "1")
        ),
        *(
            (name, 1.0, 1, r"metric '.*': cannot start series \d of this run\n  use few")
            for name in ("", "x" * 501, 3)
        ),
    ]
    for name, value, step, message in bad:
        with pytest.raises(RecordError, match=message):
            writer.log({"good": 1.0, name: value}, step)
    assert len(read_points(tmp_path)) == 0


def test_the_number_of_series_is_limited(
    writer: MetricWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "MAX_SERIES", 3)
    for step in range(3):
        writer.log({f"loss at {step}": 1.0}, step)
    with pytest.raises(RecordError, match="metric 'loss at 3': cannot start series 4"):
        writer.log({"loss at 3": 1.0}, 3)
    writer.log({"loss at 0": 1.0}, 4)
    assert len(read_points(tmp_path)) == 4


def test_unusual_names_are_stored(tmp_path: Path, writer: MetricWriter) -> None:
    names = ["a\nb", 'quote"', "\ud800", "val/größe", '","crc":1}']
    writer.log(dict.fromkeys(names, 1.0), 1)
    assert list(read_metric_points(tmp_path).names.values()) == names


def test_a_full_disk_loses_one_call_and_tears_no_row(
    tmp_path: Path, writer: MetricWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.log({"a": 1.0, "b": 2.0}, 1)
    good = durable.system.operations
    room = iter([50])

    def write(descriptor: int, data: bytes | memoryview) -> int:
        for size in room:
            return os.write(descriptor, data[:size])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(durable.system, "operations", dataclasses.replace(good, write=write))
    with pytest.raises(RecordError, match=r"metrics\.bin: cannot be written: no space left"):
        writer.log({"a": 3.0, "b": 4.0}, 2)
    monkeypatch.setattr(durable.system, "operations", good)
    writer.log({"a": 5.0}, 3)
    points = read_metric_points(tmp_path)
    assert points.rows["value"].tolist() == [1.0, 2.0, 5.0]
    assert points.damage == ()


def test_torn_and_changed_rows_are_left_out(tmp_path: Path, writer: MetricWriter) -> None:
    writer.log({"a": 1.0, "b": 2.0, "c": 3.0}, 1)
    path = tmp_path / "metrics.bin"
    data = path.read_bytes()
    for length in range(len(data) + 1):
        path.write_bytes(data[:length])
        points = read_metric_points(tmp_path)
        assert (len(points.rows), points.torn_bytes) == divmod(length, POINT_BYTES)
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 0x10
        path.write_bytes(changed)
        points = read_metric_points(tmp_path)
        left = [row for row in (0, 1, 2) if row != position // POINT_BYTES]
        assert points.rows["series"].tolist() == left
        assert points.damage == ("metrics.bin: 1 row with a wrong checksum left out",)


def test_damaged_rows_and_names_are_counted(tmp_path: Path) -> None:
    (tmp_path / "metrics.bin").write_bytes(bytes(POINT_BYTES * 10))  # a zeroed page
    assert read_metric_points(tmp_path).bad_rows == 10
    for content in (
        b"\xff\xfe",
        b"null\n[]\n",
        b'{"id":"x","name":1}\n',
        b'{"id":0}\n',
        b"\0" * 50,
    ):
        (tmp_path / "series.jsonl").write_bytes(content)
        points = read_metric_points(tmp_path)
        assert (points.names, points.bad_names >= 1) == ({}, True), content


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200), st.binary(max_size=200))
def test_reading_never_crashes(
    tmp_path_factory: pytest.TempPathFactory, points: bytes, names: bytes
) -> None:
    folder = tmp_path_factory.mktemp("rubbish")
    (folder / "metrics.bin").write_bytes(points)
    (folder / "series.jsonl").write_bytes(names)
    assert isinstance(read_metric_points(folder).damage, tuple)


def test_a_later_attempt_replaces_earlier_points(tmp_path: Path, writer: MetricWriter) -> None:
    for step in (10, 20, 30, 40):
        writer.log({"loss": step}, step)
    writer.log({"val/acc": 0.4}, 40)
    for step in (30, 35):
        writer.log({"loss": -step}, step, attempt=1)
    steps, values = read_series(tmp_path, "loss")
    assert steps.tolist() == [10, 20, 30, 35]
    assert values.tolist() == [10.0, 20.0, -30.0, -35.0]
    assert read_series(tmp_path, "val/acc")[0].tolist() == []
    assert len(read_points(tmp_path)) == 7


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20)), min_size=1, max_size=5))
def test_resumed_curves_have_one_value_per_step(
    tmp_path_factory: pytest.TempPathFactory, attempts: list[tuple[int, int]]
) -> None:
    writer = MetricWriter(tmp_path_factory.mktemp("run"))
    expected: dict[int, float] = {}
    for attempt, (start, count) in enumerate(attempts):
        expected = {step: value for step, value in expected.items() if step < start}
        for step in range(start, start + count):
            writer.log({"loss": attempt + step / 100}, step, attempt=attempt)
            expected[step] = attempt + step / 100
    steps, values = read_series(writer._folder, "loss")
    assert dict(zip(steps.tolist(), values.tolist(), strict=True)) == expected
    assert steps.tolist() == sorted(expected)


def test_a_series_has_the_last_value_of_each_step(tmp_path: Path, writer: MetricWriter) -> None:
    writer.log({"val/acc": 1.0}, 5)
    writer.log({"val/acc": 2.0}, 5)
    steps, values = read_series(tmp_path, "val/acc")
    assert (steps.tolist(), values.tolist()) == ([5], [2.0])
    assert (steps.dtype, values.dtype) == (np.int64, np.float64)
    with pytest.raises(RecordError, match=r"val/ac: no such metric\n  did you mean 'val/acc'\?"):
        read_series(tmp_path, "val/ac")


def test_sync_reaches_the_disk(writer: MetricWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    writer.log({"a": 1.0}, 1)
    synced: list[int] = []
    watched = dataclasses.replace(durable.system.operations, fsync=synced.append)
    monkeypatch.setattr(durable.system, "operations", watched)
    writer.sync()
    assert len(synced) == 1


def test_files_that_could_not_be_opened_are_opened_by_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = durable.system.operations
    for failing in range(1, 12):
        folder = tmp_path / str(failing)
        folder.mkdir()
        writer, calls = MetricWriter(folder), iter(range(1, 1000))

        def guard(name: str, failing: int = failing, calls: Iterator[int] = calls) -> Any:
            def call(*args: Any) -> Any:
                if next(calls) == failing:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                return getattr(good, name)(*args)

            return call

        guarded = {name: guard(name) for name in ("open", "write", "fsync")}
        monkeypatch.setattr(durable.system, "operations", dataclasses.replace(good, **guarded))
        with contextlib.suppress(RecordError):
            writer.log({"a": 1.0, "b": 2.0}, 1)
        monkeypatch.setattr(durable.system, "operations", good)
        writer.log({"a": 3.0, "b": 4.0}, 2)
        points = read_metric_points(folder)
        assert points.damage == (), failing
        assert points.series("b")[1].tolist()[-1] == 4.0, failing
        assert set(points.names.values()) == {"a", "b"}


@pytest.mark.parametrize("acknowledged", [1, 50, 400])
def test_a_killed_process_loses_no_acknowledged_point(tmp_path: Path, acknowledged: int) -> None:
    code = (
        "import pathlib, sys; from epochal.records.metrics.points import MetricWriter\n"
        f"writer = MetricWriter(pathlib.Path({str(tmp_path)!r}))\n"
        "for step in range(10**9):\n"
        "    writer.log({'a': step, f'b{step % 7}': -step}, step)\n"
        "    print(step, flush=True)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    seen = [int(next(child.stdout)) for _ in range(acknowledged)]
    child.kill()
    child.communicate()
    points = read_metric_points(tmp_path)
    assert points.series("a")[0].tolist()[: len(seen)] == seen
    assert points.bad_rows == 0
    assert all(int(series) in points.names for series in np.unique(points.rows["series"]))


def test_a_file_size_limit_tears_no_row(tmp_path: Path) -> None:
    code = (
        "import pathlib, resource, signal\n"
        "from epochal.records.metrics.points import MetricWriter\n"
        "from epochal.errors import RecordError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        f"writer = MetricWriter(pathlib.Path({str(tmp_path)!r}))\n"
        "for step in range(100):\n"
        "    try: writer.log({'a': step, 'b': step, 'c': step}, step)\n"
        "    except RecordError as error: print(error); break\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "metrics.bin: cannot be written: file too large" in done.stdout
    points = read_metric_points(tmp_path)
    assert points.damage == ()
    assert len(points.rows) == 1000 // 36 // 3 * 3
