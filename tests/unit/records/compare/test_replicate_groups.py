"""Tests of epochal.records.compare.replicate_groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from comparing import make_run
from epochal.records.compare.replicate_groups import find_replicates

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.records.folder.reader import RunRecord


def seeded(path: Path, seed: int, acc: float = 0.5, lr: float = 0.1, **facts: Any) -> RunRecord:
    config = {"seed": seed, "optim.lr": lr}
    return make_run(path, config, metrics={"val/acc": acc}, best=acc, **facts)


def test_replicates_of_a_project_are_found_under_any_tag(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    record = seeded(runs / "digits" / "a" / "1", 1, 0.5)
    seeded(runs / "digits" / "b" / "2", 2, 0.7)
    seeded(runs / "digits" / "b" / "3", 3, 0.9, lr=0.2)
    seeded(runs / "other" / "b" / "4", 4, 0.9, project="other")
    group = find_replicates(record, runs)
    assert group is not None
    assert group.runs == ("1", "2")
    assert group.means["val/acc"].mean == pytest.approx(0.6)
    assert group.means["best"].count == 2


def test_progress_is_reported(tmp_path: Path) -> None:
    record = seeded(tmp_path / "runs" / "1", 1)
    told: list[str] = []
    find_replicates(record, tmp_path / "runs", told.append)
    assert told


def test_for_a_run_outside_of_the_root_siblings_are_searched(tmp_path: Path) -> None:
    record = seeded(tmp_path / "mine" / "1", 1)
    seeded(tmp_path / "mine" / "2", 2)
    seeded(tmp_path / "mine" / "deeper" / "3", 3)
    group = find_replicates(record, tmp_path / "runs")
    assert group is not None
    assert group.runs == ("1", "2")


def test_incomplete_runs_and_repeated_seeds_do_not_count(tmp_path: Path) -> None:
    record = seeded(tmp_path / "1", 1, 0.1)
    seeded(tmp_path / "2", 1, 0.5)
    seeded(tmp_path / "3", 2, 0.7, status="failed")
    seeded(tmp_path / "4", 3, 0.7, status="stopped")
    group = find_replicates(record, tmp_path)
    assert group is not None
    assert group.runs == ("2", "4")
    assert group.left_out == {"failed": 1, "seed": 1}
    assert group.means["best"].mean == pytest.approx(0.6)


def test_only_values_of_all_runs_have_a_mean(tmp_path: Path) -> None:
    record = make_run(tmp_path / "1", {"seed": 1}, metrics={"a": 1.0, "train/epoch/a": 2.0})
    make_run(tmp_path / "2", {"seed": 2}, metrics={"a": 3.0, "b": 1.0})
    group = find_replicates(record, tmp_path)
    assert group is not None
    assert list(group.means) == ["a"]


def test_a_run_without_a_config_has_no_group(tmp_path: Path) -> None:
    record = make_run(tmp_path / "1")
    (record.path / "config" / "provenance.json").unlink()
    assert find_replicates(record, tmp_path) is None


def test_a_group_of_failed_runs_has_no_means(tmp_path: Path) -> None:
    group = find_replicates(seeded(tmp_path / "1", 1, status="failed"), tmp_path)
    assert group is not None
    assert (group.runs, group.left_out, group.means) == ((), {"failed": 1}, {})
