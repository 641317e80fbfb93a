"""Tests of epochal.records.compare.difference."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comparing import make_run
from epochal.records.compare.difference import (
    data_table,
    environment_table,
    git_table,
    hardware_table,
    package_table,
)

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.records.compare.difference import ValueTable

MACHINE = {
    "hostname": "box",
    "cores": 8,
    "python": "3.11.7",
    "executable": "/usr/bin/python",
    "packages": {"numpy": "2.1"},
    "gpus": [{"name": "H200"}],
    "environment": {"CUDA_VISIBLE_DEVICES": "0", "SLURM_JOB_ID": "17", "TRITON_CACHE_DIR": "/x"},
    "git": {"commit": "abc", "branch": "main", "dirty": True},
}


def values(found: ValueTable | None) -> dict[str, object]:
    assert found is not None
    return {name: side.value for name, side in found.items()}


def test_packages_are_known_with_python_and_torch(tmp_path: Path) -> None:
    record = make_run(tmp_path / "a", machine=MACHINE)
    assert values(package_table(record)) == {
        "python": "3.11.7",
        "numpy": "2.1",
        "epochal": "1",
        "torch": "2",
    }


def test_hardware_is_the_machine_and_the_device(tmp_path: Path) -> None:
    record = make_run(
        tmp_path / "a", machine=MACHINE, device={"device": "cuda", "name": "NVIDIA H200"}
    )
    assert values(hardware_table(record)) == {
        "hostname": "box",
        "cores": 8,
        "gpus.0.name": "H200",
        "device": "cuda",
        "device name": "NVIDIA H200",
    }


def test_data_is_known_by_its_fingerprint_and_by_what_the_task_says(tmp_path: Path) -> None:
    data = {"train": {"type": "Rows", "length": 9}}
    record = make_run(tmp_path / "a", data=data, meta={"classes": ["x", "y"]})
    assert values(data_table(record)) == {
        "train.type": "Rows",
        "train.length": 9,
        "meta.classes.0": "x",
        "meta.classes.1": "y",
    }


def test_git_state_is_known_where_there_is_a_repository(tmp_path: Path) -> None:
    inside = make_run(tmp_path / "a", machine=MACHINE)
    assert values(git_table(inside)) == {"commit": "abc", "branch": "main", "dirty": True}
    assert git_table(make_run(tmp_path / "b", machine={"git": None})) == {}


def test_the_environment_has_no_variables_of_jobs_and_caches(tmp_path: Path) -> None:
    record = make_run(tmp_path / "a", machine=MACHINE)
    assert values(environment_table(record)) == {"CUDA_VISIBLE_DEVICES": "0"}
    assert environment_table(make_run(tmp_path / "b", machine={"environment": {}})) == {}
    assert environment_table(make_run(tmp_path / "c")) is None


def test_tables_of_a_damaged_record_are_empty(tmp_path: Path) -> None:
    record = make_run(tmp_path / "a", machine="?", device=3, data=[], meta={})
    for table in (hardware_table, environment_table, data_table, git_table):
        assert not table(record), table
