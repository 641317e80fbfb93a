"""Tests of epochal.records.compare.curves."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

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


def test_equal_curves_do_not_diverge(tmp_path: Path) -> None:
    found = parted(tmp_path, {"train/loss": SAME}, {"train/loss": SAME})
    assert (found.bitwise, found.beyond, found.same_until) == (None, None, 3)
    assert (found.num_series, found.num_points) == (1, 3)


def test_a_last_bit_is_a_bitwise_divergence_within_the_tolerance(tmp_path: Path) -> None:
    other = SAME | {2: math.nextafter(0.5, 1)}
    found = parted(tmp_path, {"train/loss": SAME}, {"train/loss": other})
    assert found.bitwise == Divergence(2, ("train/loss",), (0.5, other[2]))
    assert found.beyond is None
    assert found.same_until == 1


def test_the_tolerance_is_relative(tmp_path: Path) -> None:
    one, other = {1: 100.0, 2: 100.0, 3: 100.0}, {1: 100.0, 2: 100.9, 3: 102.0}
    found = parted(tmp_path, {"loss": one}, {"loss": other})
    assert found.bitwise is not None
    assert found.beyond is not None
    assert (found.bitwise.step, found.beyond.step) == (2, 3)


def test_the_first_diverging_series_are_named(tmp_path: Path) -> None:
    one = {"a": SAME, "z": SAME, "train/loss": SAME, "train/acc": SAME}
    other = {"a": SAME | {3: 9.0}, "z": SAME | {2: 9.0}, "train/loss": SAME | {2: 9.0}}
    found = parted(tmp_path, one, other | {"train/acc": SAME | {2: 9.0}})
    assert found.bitwise is not None
    assert found.bitwise.step == 2
    assert found.bitwise.names == ("train/loss", "train/acc", "z")


def test_only_common_steps_are_compared(tmp_path: Path) -> None:
    found = parted(tmp_path, {"loss": {2: 1.0, 4: 0.5}}, {"loss": {1: 3.0, 2: 1.0, 3: 9.0}})
    assert found.bitwise is None
    assert (found.num_points, found.same_until) == (1, 2)
    none = parted(tmp_path / "none", {"loss": {1: 1.0}}, {"loss": {2: 1.0}, "other": {1: 1.0}})
    assert (none.num_series, none.num_points, none.same_until) == (0, 0, None)


def test_means_of_training_are_compared_if_over_the_same_steps(tmp_path: Path) -> None:
    every, often = {10: 1.0, 20: 2.0, 30: 3.0}, {5: 9.0, 10: 8.0, 20: 2.0, 30: 4.0}
    points = {"train/loss": every, "train/epoch/loss": every, "lr": every}
    others = {"train/loss": often, "train/epoch/loss": every, "lr": every}
    found = parted(tmp_path, points, others)
    assert found.bitwise == found.beyond == Divergence(30, ("train/loss",), (3.0, 4.0))
    assert (found.same_until, found.num_points, found.num_uneven) == (20, 8, 1)


def test_measurements_of_the_machine_are_not_compared(tmp_path: Path) -> None:
    machine = ["time/step", "data_time", "gpu/memory", "samples_per_second"]
    others = ["val/timely", "train/loss", "lifetimes"]
    one, other = ({name: {1: value} for name in (*machine, *others)} for value in (1.0, 2.0))
    found = parted(tmp_path, one, other)
    assert sorted(found.left_out) == sorted(machine)
    assert found.bitwise is not None
    assert sorted(found.bitwise.names) == sorted(others)


def test_nan_infinity_and_zero_are_compared(tmp_path: Path) -> None:
    pairs = {
        "nan": (math.nan, math.nan, False),
        "inf": (math.inf, math.inf, False),
        "nan and 1": (math.nan, 1.0, True),
        "inf and 1": (math.inf, 1.0, True),
        "inf and -inf": (math.inf, -math.inf, True),
        "0 and -0": (0.0, -0.0, False),
        "0 and tiny": (0.0, 1e-300, True),
    }
    one = {name: {1: value} for name, (value, _, _) in pairs.items()}
    other = {name: {1: value} for name, (_, value, _) in pairs.items()}
    found = parted(tmp_path, one, other).beyond
    assert found is not None
    assert sorted(found.names) == sorted(name for name, pair in pairs.items() if pair[2])


def test_replaced_points_are_not_compared(tmp_path: Path) -> None:
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


def test_resumes_before_the_divergence_are_reported(tmp_path: Path) -> None:
    attempts = [
        {"attempt": 0},
        {"attempt": 1, "checkpoint": "t-1", "step": 1, "kept_points": 3},
        {"attempt": 2, "checkpoint": "t-9", "step": 9, "kept_points": 3},
    ]
    one = make_run(tmp_path / "a", points={"loss": SAME})
    other = make_run(tmp_path / "b", points={"loss": SAME | {2: 7.0}}, attempts=attempts)
    assert compare_curves(one, other).resumed == ((), (1,))


def test_a_damaged_series_is_left_out(tmp_path: Path) -> None:
    one = make_run(tmp_path / "a", points={"loss": SAME})
    other = make_run(tmp_path / "b", points={"loss": SAME})
    (other.path / "metrics.bin").write_bytes(b"")
    assert compare_curves(one, read_run(other.path)).num_series == 0
