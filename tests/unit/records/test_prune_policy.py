"""Tests of epochal.records.prune."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from epochal.records.index.index_database import create_tables
from epochal.records.prune import PrunePlan, RetentionPolicy, plan_pruning
from epochal.records.query.query_runs import RunQuery, query_runs
from indexed import Indexed, add_run

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


@pytest.fixture
def index(tmp_path: Path) -> Any:
    """Five runs of a tag, one a day, with their results, and the folders of them."""
    connection = sqlite3.connect(":memory:")
    create_tables(connection)
    for i, best in enumerate([0.5, 0.9, 0.7, 0.8, 0.6]):
        run = f"2026111{i}-000000-000{i}"
        add_run(
            connection,
            run,
            tag="shop",
            status="finished",
            started=f"2026-11-1{i}T00:00:00.000+00:00",
            ended=f"2026-11-1{i}T12:00:00.000+00:00",
            monitor="val/acc",
            best=best,
            params={"monitor": "+val/acc"},
        )
        (tmp_path / "store" / "shop" / run / "checkpoints").mkdir(parents=True)
    made = Indexed(connection)
    made.root = tmp_path
    made.connection = connection  # type: ignore[attr-defined]  # for tests that change it
    return made


def make(index: Any, where: str = "step >= 0", **policy: Any) -> PrunePlan:
    whole, chosen = query_runs(index, RunQuery()), query_runs(index, RunQuery(where=where))
    return plan_pruning(whole, chosen, RetentionPolicy(**policy), now=NOW)


def to_delete(made: PrunePlan) -> list[str]:
    return [row["run"][-1] for row in made.to_delete]


def protected(made: PrunePlan) -> dict[str, str]:
    return {row["run"][-1]: reason for row, reason in made.protected}


def change(index: Any, run: str, **facts: object) -> None:
    for name, value in facts.items():
        index.connection.execute(f"UPDATE runs SET {name} = ? WHERE run LIKE ?", (value, f"%{run}"))


def test_only_selected_runs_are_deleted(index: Any) -> None:
    assert to_delete(make(index, "best < 0.65")) == ["0", "4"]


def test_old_runs_are_deleted(index: Any) -> None:
    assert to_delete(make(index, older_seconds=3.5 * 86400)) == ["0", "1"]
    change(index, "0", ended="", started="")
    assert to_delete(make(index, older_seconds=3.5 * 86400)) == ["1"]


def test_the_newest_stay(index: Any) -> None:
    made = make(index, keep_last=2)
    assert to_delete(made) == ["0", "1", "2"]
    assert protected(made)["4"] == "is one of the newest 2 of its tag"


def test_the_best_stay_in_both_modes(index: Any) -> None:
    assert to_delete(make(index, keep_best=2)) == ["0", "2", "4"]
    index.connection.execute("UPDATE params SET text = '-val/loss'")
    assert to_delete(make(index, keep_best=2)) == ["1", "2", "3"]
    index.connection.execute("UPDATE params SET key = 'monitor.mode', text = 'max'")
    assert to_delete(make(index, keep_best=1)) == ["0", "2", "3", "4"]


def test_runs_without_a_best_value_are_not_ranked(index: Any) -> None:
    change(index, "1", best=None)
    change(index, "2", best=float("inf"))
    made = make(index, keep_best=1, keeps_unranked=True)
    assert to_delete(made) == ["0", "4"]
    assert protected(made) == {
        "1": "has no best value",
        "2": "has no best value",
        "3": "is the best of its tag",
    }
    assert to_delete(make(index, "best is missing", keep_best=1)) == ["1"], "it was asked for"


def test_without_best_values_the_newest_stays(index: Any) -> None:
    for run in range(5):
        change(index, str(run), best=None)
    change(index, "2", tag="other")
    made = make(index, keep_best=3)
    assert to_delete(made) == ["0", "1", "3"]
    assert protected(made)["2"] == "is the newest of its tag, where none has a best value"
    assert to_delete(make(index, keep_best=3, keeps_unranked=True)) == []


def test_runs_are_ranked_by_tag(index: Any) -> None:
    change(index, "1", tag="other")
    assert to_delete(make(index, keep_best=1)) == ["0", "2", "4"]
    change(index, "2", runner="test")
    assert to_delete(make(index, keep_last=1)) == ["0", "3"]


def test_active_runs_stay(index: Any) -> None:
    for status in ("starting", "running"):
        change(index, "2", status=status)
        made = make(index)
        assert to_delete(made) == ["0", "1", "3", "4"], status
        assert protected(made) == {"2": "is running"}


def test_the_parent_of_a_remaining_run_stays(index: Any) -> None:
    change(index, "3", parent="20261111-000000-0001", parent_kind="test")
    change(index, "1", parent="20261110-000000-0000", parent_kind="weights")
    made = make(index, keep_last=2)
    assert to_delete(made) == ["2"]
    assert protected(made)["1"] == "20261113-000000-0003 came from it (test)"
    assert protected(made)["0"] == "20261111-000000-0001 came from it (weights)"
    assert to_delete(make(index, keep_last=1)) == ["0", "1", "2", "3"], "both go together"


def test_a_failed_run_is_deleted_though_it_was_retried(index: Any) -> None:
    change(index, "4", parent="20261113-000000-0003", parent_kind="retried")
    assert to_delete(make(index, keep_last=1)) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("key", ["init_from", "init_from.path"])
def test_a_run_stays_if_another_started_from_its_weights(index: Any, key: str) -> None:
    (number,) = index.fetch("SELECT id FROM runs WHERE run LIKE '%4'", ())[0]
    path = "runs/store/shop/20261111-000000-0001/checkpoints/final.safetensors"
    index.connection.execute("INSERT INTO params VALUES (?, ?, ?, NULL, 0)", (number, key, path))
    made = make(index, keep_last=1)
    assert to_delete(made) == ["0", "2", "3"]
    assert protected(made)["1"] == "20261114-000000-0004 started from its weights"


@pytest.mark.parametrize("place", ["", "checkpoints"])
def test_a_run_stays_if_another_links_to_it(index: Any, place: str) -> None:
    shop = index.root / "store" / "shop"
    (shop / "20261114-000000-0004" / place / "best").symlink_to(
        shop / "20261112-000000-0002" / "checkpoints" / "best"
    )
    (shop / "20261113-000000-0003" / "own").symlink_to("checkpoints")
    made = make(index, keep_last=1)
    assert to_delete(made) == ["0", "1", "3"]
    assert protected(made)["2"] == "20261114-000000-0004 links to it"
