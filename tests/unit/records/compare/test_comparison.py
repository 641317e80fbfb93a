"""Tests of epochal.records.compare.comparison."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from comparing import default, keep_code, make_run
from epochal import durable
from epochal.errors import RecordError
from epochal.records.compare.comparison import SECTIONS, describe_differences, diff
from epochal.records.compare.replicate_groups import are_replicates

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.records.folder.reader import RunRecord

MACHINE = {
    "hostname": "box",
    "python": "3.11",
    "packages": {"numpy": "2.1"},
    "environment": {"TORCH_X": "1"},
}
DATA = {"train": {"length": 9}}


@pytest.fixture
def one(tmp_path: Path) -> RunRecord:
    points = {"train/loss": {1: 1.0, 2: 0.5}}
    record = make_run(tmp_path / "one", points=points, machine=MACHINE, data=DATA)
    keep_code(record, {"task.py": b"x = 1\n"})
    return record


def test_system_figures_are_not_compared(one: RunRecord, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(one.path, other)
    for folder, cpu in ((one.path, 10), (other, 90)):
        durable.append_line(folder / "system.jsonl", {"time": 1, "system/cpu": cpu})
    assert diff(one, other).differing() == []


def test_same_run_twice_does_not_differ(one: RunRecord) -> None:
    found = diff(one, one.path)
    assert found.differing() == []
    assert str(found) == "nothing differs"


def test_everything_that_differs_is_counted(one: RunRecord, tmp_path: Path) -> None:
    other = make_run(
        tmp_path / "other",
        {"seed": 1, "optim.lr": 0.2, "optim.eps": default(0.1)},
        points={"train/loss": {1: 1.0, 2: 0.4}},
        machine={
            "hostname": "den",
            "python": "3.12",
            "packages": {"numpy": "2.2"},
            "environment": {},
        },
        data={"train": {"length": 10}},
    )
    keep_code(other, {"task.py": b"x = 2\n", "new.py": b""})
    found = diff(one, other)
    assert found.differing() == list(SECTIONS)
    assert str(found) == (
        "they differ in 1 parameter, the seed, 2 files, 2 packages, 1 fact of the machine, "
        "1 variable, 1 fact of the data and 1 metric; their curves diverge by step 2"
    )


def test_other_epochal_is_named(one: RunRecord, tmp_path: Path) -> None:
    other = make_run(tmp_path / "other", points={"train/loss": {1: 1.0, 2: 0.5}})
    keep_code(other, {"task.py": b"x = 2\n"}, epochal="bb")
    keep_code(one, {"task.py": b"x = 1\n"}, epochal="aa")
    found = diff(one, other)
    assert describe_differences(found, ("code",)) == "they differ in 1 file and Epochal itself"
    keep_code(one, {"task.py": b"x = 2\n"}, epochal="aa")
    assert describe_differences(diff(one, other), ("code",)) == "they differ in Epochal itself"


def test_only_chosen_sections_are_described(one: RunRecord, tmp_path: Path) -> None:
    other = make_run(tmp_path / "other", {"seed": 1, "optim.lr": 0.2}, machine=MACHINE)
    found = diff(one, other)
    assert describe_differences(found, ("seed",)) == "they differ in the seed"
    assert describe_differences(found, ("packages",)) == "nothing differs"
    assert set(found.to_json(("seed",))) == {"runs", "differing", "seed"}


def test_same_run_with_other_curves_is_recognised(one: RunRecord, tmp_path: Path) -> None:
    points = {"train/loss": {1: 1.0, 2: 0.4}}
    other = make_run(tmp_path / "other", points=points, machine=MACHINE, data=DATA)
    keep_code(other, {"task.py": b"x = 1\n"})
    assert diff(one, other).is_same_but_for_results
    assert not diff(one, one).is_same_but_for_results
    (other.path / "code" / "manifest.json").unlink()
    assert not diff(one, other).is_same_but_for_results


def test_runs_that_differ_only_by_seed_are_replicates(one: RunRecord, tmp_path: Path) -> None:
    other = make_run(tmp_path / "other", {"seed": 1})
    third = make_run(tmp_path / "third", {"seed": 1, "optim.lr": 0.2})
    assert are_replicates(diff(one, other).groups)
    assert not are_replicates(diff(one, third).groups)


def test_json_holds_all_sections(one: RunRecord, tmp_path: Path) -> None:
    other = make_run(tmp_path / "other", {"optim.lr": 0.2}, points={"train/loss": {1: 2.0}})
    plain = json.loads(durable.encode_json(diff(one, other).to_json()))
    assert set(plain) == {"runs", "differing", "replicates", *SECTIONS}
    assert plain["params"]["differences"][0]["key"] == "optim.lr"
    assert plain["curves"][0]["bitwise"]["step"] == 1
    assert [run["id"] for run in plain["runs"]] == ["one", "other"]


def test_runs_are_named_as_in_every_command(one: RunRecord) -> None:
    found = diff("one", "last", root=one.path.parent)
    assert [record.path for record in found.records] == [one.path, one.path]


def test_one_run_alone_cannot_be_compared(one: RunRecord) -> None:
    with pytest.raises(RecordError, match=r"needs two runs or more, got 1\n.*`epochal runs`"):
        diff(one)


def test_negative_tolerance_is_refused(one: RunRecord) -> None:
    with pytest.raises(RecordError, match="must not be negative, got -1"):
        diff(one, one, tolerance=-1)
