"""Tests of epochal.records.compare.replicate_groups."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from epochal.records import read_run
from epochal.records.compare.replicate_groups import find_related_runs

if TYPE_CHECKING:
    from pathlib import Path


def make(root: Path, name: str, *, seed: int = 0, status: str = "finished", **run: Any) -> None:
    folder = root / "project" / "tag" / name
    (folder / "config").mkdir(parents=True)
    facts = {
        "status": status,
        "started": f"2026-01-01T00:00:{len(list(folder.parent.iterdir())):02}",
    }
    (folder / "status.json").write_text(json.dumps(facts))
    (folder / "run.json").write_text(json.dumps({"id": name, "seed": seed, **run}))
    (folder / "result.json").write_text(json.dumps({"best": seed / 10}))
    values = {"optim.lr": [{"value": run.get("lr", 0.1)}], "seed": [{"value": seed}]}
    (folder / "config" / "provenance.json").write_text(json.dumps(values))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make(tmp_path, "a", seed=1)
    make(tmp_path, "b", seed=2, parent={"run": "a", "kind": "trial"})
    make(tmp_path, "c", seed=2)
    make(tmp_path, "d", seed=3, status="failed", parent={"run": "a", "kind": "weights"})
    make(tmp_path, "e", seed=4, lr=0.2)
    return tmp_path


def test_children_name_their_parent(root: Path) -> None:
    found = find_related_runs(read_run(root / "project" / "tag" / "a"), root, print).children
    assert [(one.run, one.kind, one.status) for one in found] == [
        ("b", "trial", "finished"),
        ("d", "weights", "failed"),
    ]


def test_replicates_are_completed_runs_one_per_seed(root: Path) -> None:
    found = find_related_runs(read_run(root / "project" / "tag" / "a"), root, print).replicates
    assert [(one.run, one.seed, one.best) for one in found] == [("a", 1, 0.1), ("c", 2, 0.2)]
    assert find_related_runs(read_run(root / "project" / "tag" / "e"), root, print).replicates == ()


def test_a_run_outside_of_the_root_has_no_related_runs(root: Path, tmp_path: Path) -> None:
    record = read_run(root / "project" / "tag" / "a")
    found = find_related_runs(record, root / "other", print)
    assert (found.children, found.replicates) == ((), ())
