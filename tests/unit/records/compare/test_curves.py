"""Tests of epochal.records.compare.curves."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from comparing import make_run
from epochal.records.compare.curves import CurveComparison, Divergence, compare_curves
from epochal.records.find import read_run
from epochal.records.folder.folder import RunFolder
from epochal.records.folder.writer import RunWriter

if TYPE_CHECKING:
    from pathlib import Path

SAME = {1: 1.0, 2: 0.5, 3: 0.25}


def parted(tmp_path: Path, one: Any, other: Any, *, tolerance: float = 0.01) -> CurveComparison:
    first = make_run(tmp_path / "a", points=one)
    second = make_run(tmp_path / "b", points=other)
    return compare_curves(first, second, tolerance=tolerance)


def test_same_curves_never_part(tmp_path: Path) -> None:
    found = parted(tmp_path, {"train/loss": SAME}, {"train/loss": SAME})
    assert (found.bitwise, found.beyond, found.same_until) == (None, None, 3)
    assert (found.num_series, found.num_points) == (1, 3)


def test_last_bit_is_enough_to_part_but_stays_close(tmp_path: Path) -> None:
    other = SAME | {2: math.nextafter(0.5, 1)}
    found = parted(tmp_path, {"train/loss": SAME}, {"train/loss": other})
    assert found.bitwise == Divergence(2, ("train/loss",), (0.5, other[2]))
    assert found.beyond is None
    assert found.same_until == 1


def test_tolerance_is_a_share_of_the_value(tmp_path: Path) -> None:
    one, other = {1: 100.0, 2: 100.0, 3: 100.0}, {1: 100.0, 2: 100.9, 3: 102.0}
    found = parted(tmp_path, {"loss": one}, {"loss": other})
    assert found.bitwise is not None
    assert found.beyond is not None
    assert (found.bitwise.step, found.beyond.step) == (2, 3)


def test_series_that_parts_first_is_named_first(tmp_path: Path) -> None:
    one = {"a": SAME, "z": SAME, "train/loss": SAME, "train/acc": SAME}
    other = {"a": SAME | {3: 9.0}, "z": SAME | {2: 9.0}, "train/loss": SAME | {2: 9.0}}
    found = parted(tmp_path, one, other | {"train/acc": SAME | {2: 9.0}})
    assert found.bitwise is not None
    assert found.bitwise.step == 2
    assert found.bitwise.names == ("train/loss", "train/acc", "z")


def test_only_steps_that_both_recorded_are_compared(tmp_path: Path) -> None:
    found = parted(tmp_path, {"loss": {2: 1.0, 4: 0.5}}, {"loss": {1: 3.0, 2: 1.0, 3: 9.0}})
    assert found.bitwise is None
    assert (found.num_points, found.same_until) == (1, 2)


def test_means_of_training_are_compared_where_they_are_over_the_same_steps(tmp_path: Path) -> None:
    every, often = {10: 1.0, 20: 2.0, 30: 3.0}, {5: 9.0, 10: 8.0, 20: 2.0, 30: 4.0}
    points = {"train/loss": every, "train/epoch/loss": every, "lr": every}
    others = {"train/loss": often, "train/epoch/loss": every, "lr": every}
    found = parted(tmp_path, points, others)
    assert found.bitwise == found.beyond == Divergence(30, ("train/loss",), (3.0, 4.0))
    assert (found.same_until, found.num_points, found.num_uneven) == (20, 8, 1)


def test_runs_without_a_common_step_share_nothing(tmp_path: Path) -> None:
    found = parted(tmp_path, {"loss": {1: 1.0}}, {"loss": {2: 1.0}, "other": {1: 1.0}})
    assert (found.num_series, found.num_points, found.same_until) == (0, 0, None)


@pytest.mark.parametrize("name", ["time/step", "data_time", "gpu/memory", "samples_per_second"])
def test_what_measures_the_machine_is_left_out(tmp_path: Path, name: str) -> None:
    found = parted(tmp_path, {name: {1: 1.0}}, {name: {1: 2.0}})
    assert found.bitwise is None
    assert found.left_out == (name,)


@pytest.mark.parametrize("name", ["val/timely", "train/loss", "lifetimes"])
def test_names_that_only_resemble_such_measures_are_compared(tmp_path: Path, name: str) -> None:
    assert parted(tmp_path, {name: {1: 1.0}}, {name: {1: 2.0}}).bitwise is not None


@pytest.mark.parametrize(
    ("one", "other", "is_far"),
    [
        (math.nan, math.nan, False),
        (math.inf, math.inf, False),
        (math.nan, 1.0, True),
        (math.inf, 1.0, True),
        (math.inf, -math.inf, True),
        (0.0, -0.0, False),
        (0.0, 1e-300, True),
    ],
)
def test_odd_numbers_are_compared(tmp_path: Path, one: float, other: float, is_far: bool) -> None:
    found = parted(tmp_path, {"loss": {1: one}}, {"loss": {1: other}})
    assert (found.beyond is not None) == is_far


def test_what_a_later_attempt_did_again_does_not_count(tmp_path: Path) -> None:
    plain = make_run(tmp_path / "a", points={"loss": SAME})
    attempts = [
        {"attempt": 0},
        {"attempt": 1, "checkpoint": "t-1", "origin": 0, "step": 1, "kept_points": 1},
    ]
    path = tmp_path / "b"
    make_run(path, points={"loss": {1: 1.0, 2: 77.0}}, attempts=attempts)
    writer = RunWriter(RunFolder(path), attempt=1)
    for step in (2, 3):
        writer.log({"loss": SAME[step]}, step)
    writer.close()
    found = compare_curves(plain, read_run(path))
    assert found.bitwise is None
    assert found.num_points == 3


def test_resume_before_the_parting_is_told(tmp_path: Path) -> None:
    attempts = [
        {"attempt": 0},
        {"attempt": 1, "checkpoint": "t-1", "step": 1, "kept_points": 3},
        {"attempt": 2, "checkpoint": "t-9", "step": 9, "kept_points": 3},
    ]
    one = make_run(tmp_path / "a", points={"loss": SAME})
    other = make_run(tmp_path / "b", points={"loss": SAME | {2: 7.0}}, attempts=attempts)
    assert compare_curves(one, other).resumed == ((), (1,))


def test_damaged_series_is_left_out(tmp_path: Path) -> None:
    one = make_run(tmp_path / "a", points={"loss": SAME})
    other = make_run(tmp_path / "b", points={"loss": SAME})
    (other.path / "metrics.bin").write_bytes(b"")
    assert compare_curves(one, read_run(other.path)).num_series == 0
