"""The table of runs: rows, columns, queries, groups."""

from __future__ import annotations

import json
import math
import os
from typing import TYPE_CHECKING

from comparing import default, make_run
from unit.web.conftest import RUNS

if TYPE_CHECKING:
    from pathlib import Path

    from browsing import Browser


NEWEST = "2026-11-16T00:00:00+00:00"


def ids(table) -> list[str]:
    return [row["id"] for row in table["rows"]]


def test_rows_are_selected_sorted_and_cut(browser: Browser) -> None:
    first, second, third = RUNS
    for query, expected in [
        ({}, [third, second, first]),
        ({"limit": 2}, [third, second]),
        ({"limit": 2, "offset": 1}, [second, first]),
        ({"offset": 7}, []),
        ({"sort": "val/acc"}, [first, second, third]),
        ({"sort": "-val/acc", "limit": 1}, [third]),
        ({"sort": "-val/acc", "limit": 1, "offset": 2}, [first]),
        ({"where": "optim.lr > 0.15"}, [third, second]),
        ({"where": "status = failed"}, [third]),
        ({"search": "why"}, [third, second, first]),
        ({"search": "nowhere"}, []),
    ]:
        table = browser.get("/api/runs", **query)
        assert ids(table) == expected, query
        assert table["problem"] is None, query
    assert browser.get("/api/runs", limit=1)["total"] == 3
    assert browser.get("/api/runs", where="optim.lr > 0.15", limit=1)["total"] == 2


def test_cells_are_in_the_order_of_columns(browser: Browser) -> None:
    table = browser.get("/api/runs", columns="val/acc, optim.lr, seed, task.augment", limit=1)
    assert [one["name"] for one in table["columns"]] == [
        "val/acc",
        "optim.lr",
        "seed",
        "task.augment",
    ]
    assert [one["kind"] for one in table["columns"]] == ["metric", "config", "fact", "config"]
    (row,) = table["rows"]
    assert row["cells"] == [0.8, 0.30000000000000004, 2, True]
    assert (row["tag"], row["status"]) == ("run 2", "failed")


def test_wrong_queries_are_explained_at_their_place(browser: Browser) -> None:
    for query, where, what, hint in [
        ({"where": "optim.lrr > 1"}, "where", "unknown name 'optim.lrr'", "did you mean"),
        ({"where": "val/acc >"}, "where", "", ""),
        ({"sort": "nope"}, "sort", "unknown name 'nope'", ""),
        ({"columns": "nope"}, "columns", "unknown name 'nope'", ""),
        ({"where": "__import__('os')"}, "where", "", ""),
        ({"where": "1; DROP TABLE runs"}, "where", "", ""),
    ]:
        table = browser.get("/api/runs", **query)
        assert table["rows"] == [], query
        assert table["problem"]["where"] == where, query
        assert what in table["problem"]["what"], query
        assert hint in table["problem"]["hint"], query
    problem = browser.get("/api/runs", where="val/acc > 0.1 and nope = 1")["problem"]
    assert (problem["start"], problem["end"]) == (18, 22)


def test_runs_that_differ_by_seed_are_one_group(browser: Browser, runs: Path) -> None:
    for seed in (0, 1):
        make_run(
            runs / "shop" / "pair" / f"20261115-10000{seed}-abcd",
            {"seed": seed, "optim.lr": 0.5},
            points={"val/acc": {1: 0.4 + seed / 10}},
            metrics={"val/acc": 0.4 + seed / 10},
        )
    table = browser.get("/api/runs", group="seed", columns="val/acc, seed, optim.lr")
    pair = next(row for row in table["rows"] if row["members"] == 2)
    assert pair["cells"] == [0.45, "0, 1", 0.5]
    assert pair["intervals"][0][0] < 0.45 < pair["intervals"][0][1]
    assert sorted(pair["ids"]) == ["20261115-100000-abcd", "20261115-100001-abcd"]
    assert table["total"] == 4
    assert browser.get("/api/runs", group="tag", columns="seed")["total"] == 4


def test_trials_of_sweeps_are_left_out_on_request_unless_the_filter_names_them(
    browser: Browser, runs: Path
) -> None:
    for number in (0, 1):
        make_run(
            runs / "shop" / "t" / f"20261115-10000{number}-abcd",
            {"optim.lr": 0.5 + number},
            trial={"sweep": "first", "number": number},
        )
    for query, total, hidden in [
        ({}, 5, 0),
        ({"trials": "false"}, 3, 2),
        ({"trials": "false", "where": "optim.lr > 1"}, 0, 1),
        ({"trials": "false", "where": "sweep = first"}, 2, 0),
        ({"trials": "false", "where": "trial = 1"}, 1, 0),
        ({"trials": "false", "group": "tag"}, 3, 2),
        ({"trials": "false", "where": "optim.lr >"}, 0, 0),
    ]:
        table = browser.get("/api/runs", **query)
        assert (table["total"], table["hidden_trials"]) == (total, hidden), query


def test_columns_have_types_and_say_whether_they_differ(browser: Browser, runs: Path) -> None:
    make_run(runs / "shop" / "t" / "20261116-000000-abcd", {"task.depth": default(2)})
    found = {one["name"]: one for one in browser.get("/api/columns")["columns"]}
    for name, kind, type_, differs in [
        ("optim.lr", "config", "number", True),
        ("task.augment", "config", "bool", True),
        ("monitor", "fact", "text", True),
        ("val/acc", "metric", "number", True),
        ("started", "fact", "time", True),
        ("seconds", "fact", "duration", True),
    ]:
        assert found[name] == {"name": name, "kind": kind, "type": type_, "differs": differs}
    assert "stamp" not in found
    assert not found["task.depth"]["differs"], "a default that only one run has"
    assert "path" not in found


def test_values_that_json_lacks_are_texts(browser: Browser, runs: Path) -> None:
    points = {"val/acc": {1: math.nan}, "train/loss": {1: math.inf}}
    make_run(runs / "shop" / "odd" / "20261116-000000-abcd", points=points, created=NEWEST)
    table = browser.get("/api/runs", columns="val/acc, train/loss", limit=1)
    assert table["rows"][0]["cells"] == ["nan", "inf"]


def test_new_changed_and_deleted_runs_are_seen(browser: Browser, runs: Path) -> None:
    assert browser.get("/api/runs")["total"] == 3
    made = make_run(runs / "shop" / "t" / "20261116-000000-abcd", created=NEWEST)
    assert ids(browser.get("/api/runs"))[0] == "20261116-000000-abcd"
    (made.path / "README.md").write_text("# better name\n")
    assert browser.get("/api/runs")["rows"][0]["tag"] == "better name"


def test_run_whose_process_died_is_lost(browser: Browser, runs: Path) -> None:
    folder = runs / "shop" / "t" / "20261116-000000-abcd"
    make_run(folder, created=NEWEST, status="running")
    status = json.loads((folder / "status.json").read_text())
    owner = {"pid": 7, "host": "elsewhere", "process": "boot:1"}
    (folder / "status.json").write_text(json.dumps(status | owner))
    os.utime(folder / "status.json", (1e9, 1e9))  # its last sign of life
    assert browser.get("/api/runs")["rows"][0]["status"] == "lost"


def test_a_folder_without_runs_has_an_empty_table(tmp_path: Path) -> None:
    from browsing import Browser

    browser = Browser(tmp_path / "nothing")
    browser.sign_in()
    assert browser.get("/api/runs")["rows"] == []
    assert browser.get("/api/columns")["columns"]
    make_run(tmp_path / "nothing" / "p" / "t" / "20261116-000000-abcd")
    assert ids(browser.get("/api/runs")) == ["20261116-000000-abcd"]
    browser.close()
