"""Tests of groups of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from epochal.records.query.query_runs import RunQuery, query_runs
from epochal.records.query.resolve_names import ConfigKey, Fact, Measure
from epochal.records.query.tabulate import REPLICATE, RunGroup, group, sort_groups
from indexed import Indexed, add_run

if TYPE_CHECKING:
    import sqlite3

ACC = Measure("val/acc", "val/acc", "last")


@pytest.fixture
def index(connection: sqlite3.Connection) -> Any:
    """Three seeds of one config, one of them twice, and a failure; and a run of another config."""
    for name in ("runs", "params", "metrics"):
        connection.execute(f"DELETE FROM {name}")
    facts = [("a", 1, "finished", 0.8), ("a", 2, "finished", 0.9), ("a", 2, "stopped", 1.0),
             ("a", 3, "failed", 0.1), ("b", 1, "finished", 0.5)]  # fmt: skip
    for i, (key, seed, status, accuracy) in enumerate(facts):
        add_run(
            connection,
            f"run-{i}",
            replicate=key,
            seed=seed,
            status=status,
            started=f"2026-11-1{i}T00:00:00+00:00",
            params={"optim.type": key.upper()},
            metrics={"val/acc": (accuracy, accuracy, accuracy)},
        )
    return Indexed(connection)


def test_replicates_count_once_for_each_seed_and_only_if_they_ended(index: Any) -> None:
    answer = query_runs(index, RunQuery())
    first, second = group(answer, [REPLICATE])
    assert first == RunGroup((0, 1, 2, 3), (0, 2))
    assert second == RunGroup((4,), (4,))
    mean = first.mean(answer.values(ACC))
    assert mean is not None
    assert (mean.mean, mean.count) == (pytest.approx(0.9), 2)
    assert mean.low < 0.8 < 1.0 < mean.high


def test_order_of_the_runs_does_not_decide_which_one_counts(index: Any) -> None:
    answer = query_runs(index, RunQuery(sort="started desc"))
    counted = group(answer, [REPLICATE])[1].counted
    assert {answer.rows[place]["run"] for place in counted} == {"run-0", "run-2"}


def test_groups_by_other_names_count_every_run_that_ended(index: Any) -> None:
    answer = query_runs(index, RunQuery())
    groups = group(answer, [ConfigKey("optim.type", "optim.type")])
    assert [one.counted for one in groups] == [(0, 1, 2), (4,)]
    both = group(answer, [ConfigKey("optim.type", "optim.type"), Fact("seed", "seed")])
    assert [one.places for one in both] == [(0,), (1, 2), (3,), (4,)]


def test_runs_of_which_nothing_is_known_are_alone(
    index: Any, connection: sqlite3.Connection
) -> None:
    add_run(connection, "x")
    add_run(connection, "y")
    places = [one.places for one in group(query_runs(index, RunQuery()), [REPLICATE])]
    assert places == [(0,), (1,), (2, 3, 4, 5), (6,)]


def test_what_has_no_mean(index: Any) -> None:
    answer = query_runs(index, RunQuery())
    first = group(answer, [REPLICATE])[0]
    assert first.mean(answer.values(ConfigKey("optim.type", "optim.type"))) is None
    assert first.mean([None] * 5) is None
    assert RunGroup((3,), ()).mean(answer.values(ACC)) is None


def test_distinct_values(index: Any) -> None:
    assert RunGroup((0, 1, 2), ()).distinct([3, 1, 3]) == [1, 3]
    assert RunGroup((0, 1, 2), ()).distinct(["b", None, "a"]) == ["b", "a"]


def test_groups_are_sorted_by_mean(index: Any) -> None:
    answer = query_runs(index, RunQuery())
    groups = [*group(answer, [REPLICATE]), RunGroup((3,), ())]
    values = answer.values(ACC)
    up = sort_groups(groups, values, is_descending=False)
    down = sort_groups(groups, values, is_descending=True)
    assert [one.places[0] for one in up] == [4, 0, 3]
    assert [one.places[0] for one in down] == [0, 4, 3]
