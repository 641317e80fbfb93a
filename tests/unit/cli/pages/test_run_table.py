"""Tests of lists of runs for people."""

from __future__ import annotations

import json
import sqlite3
import time
from typing import TYPE_CHECKING, Any

from epochal.cli.pages.run_table import (
    format_cell,
    format_columns,
    format_group_columns,
    format_groups,
    format_runs,
    run_to_json,
)
from epochal.records.index.index_database import create_tables
from epochal.records.query.query_runs import RunQuery, query_runs
from epochal.records.query.resolve_names import ConfigKey, Fact, Measure
from epochal.records.query.tabulate import REPLICATE, group
from indexed import Indexed, add_run

if TYPE_CHECKING:
    import pytest

LR, ACC = ConfigKey("optim.lr", "optim.lr"), Measure("val/acc", "val/acc", "last")


def answer_of(*runs: dict[str, Any]) -> Any:
    connection = sqlite3.connect(":memory:")
    create_tables(connection)
    usual = {"project": "store", "tag": "shop", "runner": "train", "status": "finished"}
    for i, facts in enumerate(runs):
        add_run(connection, f"run-{i}", **{**usual, "started": f"2026-11-1{i}", **facts})
    return query_runs(Indexed(connection), RunQuery())  # type: ignore[arg-type]  # has what is used


def run_with(accuracy: float, *, lr: float = 0.1, **facts: Any) -> dict[str, Any]:
    return {
        "result": json.dumps(
            {"train/loss": 1.0, "val/probe/x": 7.0, "val/loss": 0.5, "val/acc": accuracy}
        ),
        "monitor": "val/acc",
        "best": accuracy,
        "step": 12,
        "seconds": 75.0,
        "params": {"optim.lr": lr},
        "metrics": {"val/acc": (accuracy, accuracy, accuracy)},
        **facts,
    }


def test_table_has_results_errors_reasons_and_damage() -> None:
    answer = answer_of(
        run_with(0.9, params={}),
        {"status": "failed", "error": "TaskError: no loss", "reason": "failed"},
        {"status": "stopped", "reason": "time limit", "attempt": 3, "rollbacks": 1},
        {"status": "damaged", "damage": "run.json: missing\nstatus.json: missing"},
    )
    header, *lines = format_runs(answer, []).splitlines()
    assert header.split() == [
        "run", "project", "tag", "runner", "status", "reason", "resumed", "steps", "time", "best",
        "result",
    ]  # fmt: skip
    assert lines[0].endswith("12     1 min 15 s  0.9   val/acc 0.9  val/loss 0.5")
    assert lines[1].endswith("TaskError: no loss")
    assert " 2x " in lines[2]
    assert lines[2].endswith("time limit")
    assert lines[3].endswith("run.json: missing; status.json: missing")


def test_empty_columns_are_left_out() -> None:
    header = format_runs(answer_of(run_with(0.9)), []).splitlines()[0]
    assert not {"variant", "reason", "resumed"} & set(header.split())


def test_purpose_differences_and_fast_runs_are_shown() -> None:
    table = [
        {"desc": "the base\n\nmore"},
        {"params": {"optim.lr": 0.2, "model.depth": 6}, "seed": 3},
        {"params": {"optim.lr": 0.1, "model.depth": 3}},
        {"params": {"optim.lr": 0.9}, "fast": 1, "desc": "does it run"},
        {"runner": "test", "parent": "20261115-125010-57c7"},
    ]
    usual = {"params": {"optim.lr": 0.1, "model.depth": 3}, "seed": 0}
    answer = answer_of(*[run_with(0.9, **(usual | facts)) for facts in table])
    assert format_runs(answer, [], width=90).splitlines() == [
        "run    desc          status           best  differs          result",
        "run-0  the base      finished         0.9                    val/acc 0.9  val/loss 0.5",
        "run-1                finished         0.9   model.depth=6 …  val/acc 0.9  val/loss 0.5",
        "run-2                finished         0.9                    val/acc 0.9  val/loss 0.5",
        "run-3  does it run   finished (fast)  0.9                    val/acc 0.9  val/loss 0.5",
        "run-4  test of 57c7  finished         0.9                    val/acc 0.9  val/loss 0.5",
    ]
    assert " desc " not in format_runs(answer, [], width=72)
    assert " differs " in format_runs(answer, [], width=72)
    assert "model.depth=6  optim.lr=0.2  seed=3" in format_runs(answer, [], width=200)
    asked = format_runs(answer, [LR], width=200)
    assert "model.depth=6  seed=3 " in asked
    assert "optim.lr=" not in asked


def test_what_no_two_runs_share_is_shown_for_all() -> None:
    answer = answer_of(*[run_with(0.9, lr=lr) for lr in (0.1, 0.2, 0.3)])
    lines = format_runs(answer, [], width=120).splitlines()[1:]
    assert [f"optim.lr={lr}" in line for line, lr in zip(lines, (0.1, 0.2, 0.3), strict=True)] == [
        True
    ] * 3


def test_columns_of_the_query_are_shown() -> None:
    answer = answer_of(run_with(0.9), run_with(0.8, lr=0.2))
    header, first, second = format_runs(answer, [LR, Fact("status", "status")]).splitlines()
    assert header.split()[-2:] == ["optim.lr", "result"]
    assert header.split().count("status") == 1
    assert first[header.index("optim.lr") :].startswith("0.1 ")
    assert second[header.index("optim.lr") :].startswith("0.2 ")


def test_narrow_terminals_drop_constant_columns_first() -> None:
    answer = answer_of(run_with(0.9, tag="wide"), run_with(0.8, tag="narrow"))
    wide = format_runs(answer, [], width=200).splitlines()[0].split()
    narrow = format_runs(answer, [], width=60).splitlines()[0].split()
    tiny = format_runs(answer, [LR], width=20)
    assert {"project", "runner", "time"} <= set(wide)
    assert narrow == ["run", "tag", "status", "best", "result"]
    assert tiny.splitlines()[0].split()[:2] == ["run", "status"]
    assert all(len(line) <= 20 for line in tiny.splitlines())


def test_requested_columns_are_all_shown() -> None:
    answer = answer_of(run_with(0.9))
    lines = format_columns(answer, [Fact("host", "host"), ACC, Fact("run", "run")]).splitlines()
    assert lines[0].split() == ["host", "val/acc", "run"]
    assert format_columns(answer, [ACC]).splitlines()[1].split() == ["run-0", "0.9"]


def test_groups_have_a_mean_with_its_interval() -> None:
    runs = [run_with(0.8 + 0.1 * i, seed=i, replicate="a") for i in range(3)]
    other = run_with(0.5, lr=0.2, seed=0, replicate="b")
    failed = run_with(0.1, seed=7, replicate="a", status="failed")
    answer = answer_of(*runs, other, failed)
    groups = group(answer, [REPLICATE])
    header, first, second = format_groups(answer, groups, [], []).splitlines()
    assert first.split()[:4] == ["run-4", "3", "of", "4"]
    assert "0, 1, 2, 7" in first
    assert "0.9 ± 0.25  val/acc 0.9 ± 0.25" in first
    assert first[header.index("optim.lr") :].startswith("0.1 ")
    assert second.split()[:2] == ["run-3", "1"]
    assert "±" not in second
    exact = format_group_columns(answer, groups, [ACC, LR]).splitlines()
    assert exact[0].split() == ["newest", "runs", "val/acc", "optim.lr"]
    assert exact[1].endswith("0.9 ± 0.25  0.1")


def test_many_values_of_a_group_are_counted() -> None:
    answer = answer_of(*(run_with(0.9, lr=float(i), tag=f"t{i % 2}") for i in range(8)))
    groups = group(answer, [Fact("runner", "runner")])
    table = format_groups(answer, groups, [Fact("runner", "runner")], [])
    assert "optim.lr" not in table
    assert "t0, t1" in table
    assert format_group_columns(answer, groups, [LR]).splitlines()[1].endswith("8 values")


def test_cells_are_formatted_by_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    for target, value, shown in [
        (LR, None, ""),
        (LR, 0.123456, "0.1235"),
        (LR, True, "true"),
        (LR, "a\nb", "a"),
        (LR, "x" * 50 + "y" * 50, "x" * 29 + "…" + "y" * 30),
        (Fact("time", "seconds"), 75.0, "1 min 15 s"),
        (Fact("started", "started"), "2026-11-15T10:00:00.000+00:00", "2026-11-15 10:00"),
        (Fact("started", "started"), "soon", "soon"),
        (ACC, float("nan"), "nan"),
    ]:
        monkeypatch.setenv("TZ", "UTC")
        time.tzset()
        assert format_cell(target, value) == shown, target


def test_json_of_a_run() -> None:
    answer = answer_of(run_with(0.9, damage="run.json: missing"))
    facts = run_to_json(answer, answer.rows[0])
    assert facts["metrics"].keys() == {"train/loss", "val/probe/x", "val/loss", "val/acc"}
    assert facts["damage"] == ["run.json: missing"]
    assert (facts["id"], facts["variant"], facts["reason"]) == ("run-0", None, "")
