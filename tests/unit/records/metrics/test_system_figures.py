"""Tests of epochal.records.metrics.system_figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from epochal import durable
from epochal.errors import RecordError
from epochal.records.metrics.system_figures import SYSTEM_FILE, read_system

if TYPE_CHECKING:
    from pathlib import Path

SAMPLES: list[dict[str, object]] = [
    {"time": 100.0, "step": 0, "system/memory": 10},
    {"time": 110.0, "step": 7, "system/memory": 30, "system/cpu": 50.0},
    {"time": 120.0, "step": 9, "system/memory": 20, "system/cpu": 80.0},
]


def write(folder: Path, *lines: bytes) -> None:
    (folder / SYSTEM_FILE).write_bytes(b"".join([*map(durable.encode_line, SAMPLES), *lines]))


def test_figures_are_read_over_the_time_since_the_first_sample(tmp_path: Path) -> None:
    write(tmp_path)
    figures = read_system(tmp_path)
    assert figures.names == ["system/cpu", "system/memory"]
    seconds, values = figures.series("system/cpu")
    assert (seconds.tolist(), values.tolist()) == ([10, 20], [50, 80])
    assert figures.summarise() == {"system/cpu": (65, 80), "system/memory": (20, 30)}
    assert [sample["step"] for sample in figures.samples] == [0, 7, 9]


def test_a_run_without_figures_has_no_names(tmp_path: Path) -> None:
    figures = read_system(tmp_path)
    assert (figures.samples, figures.names, figures.summarise()) == ([], [], {})


def test_unknown_figures_are_refused_with_a_suggestion(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(RecordError, match="did you mean 'system/cpu'"):
        read_system(tmp_path).series("system/cpus")


def test_damaged_samples_are_left_out(tmp_path: Path) -> None:
    write(
        tmp_path,
        b"\xff\xfe\n",
        b'{"time": "noon", "system/cpu": 1}\n',
        b'{"time": 130, "system/cpu": "busy", "system/memory": 40}\n',
        b'{"time": 140, "system/cp',
    )
    assert read_system(tmp_path).summarise() == {
        "system/cpu": (65, 80),
        "system/memory": (25, 40),
    }
