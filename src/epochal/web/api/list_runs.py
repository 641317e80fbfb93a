"""The table of runs: the available columns, and rows that a query selects, sorts and groups."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from epochal.records.folder.labels import split_labels
from epochal.records.query.query_runs import (
    RunQuery,
    columns_of,
    count_hidden_trials,
    count_runs,
    orders_of,
    query_runs,
)
from epochal.records.query.resolve_names import FACTS, ConfigKey, Fact, Measure
from epochal.records.query.syntax import QueryError
from epochal.records.query.tabulate import REPLICATE, group, join_values, sort_groups
from epochal.web.site.api_error import ApiError
from epochal.web.site.numbers import to_json_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from epochal.records.index import Index
    from epochal.records.query.query_runs import QueryResult
    from epochal.records.query.resolve_names import Target
    from epochal.records.query.tabulate import RunGroup
    from epochal.web.site.route import ApiCall
    from epochal.web.site.site import Site

MAX_ROWS = 1000
MAX_COLUMNS = 250
GROUPS = ("seed", "tag", "label")
DEFAULT_COLUMNS = "project, best, step, seconds"
_HIDDEN = ("path", "result", "replicate", "points")
_TYPES = {"text": "text", "number": "number", "time": "time", "length": "duration"}
_KEYS = """
WITH RECURSIVE found(key) AS (
  SELECT min(key) FROM params
  UNION ALL
  SELECT (SELECT min(key) FROM params WHERE key > found.key) FROM found WHERE key IS NOT NULL
), one AS (
  SELECT key,
    (SELECT min(text) FROM params WHERE key = found.key) AS low,
    (SELECT max(text) FROM params WHERE key = found.key) AS high
  FROM found WHERE key IS NOT NULL
)
SELECT key, low, high,
  CASE WHEN low IS high THEN (SELECT count(*) FROM params WHERE key = one.key) END AS num,
  (SELECT number FROM params WHERE key = one.key AND text IS NOT NULL LIMIT 1) AS number
FROM one"""  # counting is slow, and only done if needed
_CHOSEN = (
    "SELECT DISTINCT key FROM params WHERE key IN (SELECT value FROM json_each(?)) "
    "AND NOT is_default"  # a default that only some runs have is no difference that was chosen
)
_METRICS = "SELECT name, min(last), max(last) FROM metrics GROUP BY name"


def get_columns(site: Site, call: ApiCall) -> dict[str, Any]:
    """All names that a query can use."""
    return {"columns": site.index.ask_once("columns", lambda index: list(iter_columns(index)))}


def iter_columns(index: Index) -> Iterator[dict[str, Any]]:
    """The facts, settings and metrics of all runs, with their types."""
    (total,) = index.fetch("SELECT count(*) FROM runs")[0]
    keys = index.fetch(_KEYS)
    some = [key for key, low, high, num, _ in keys if low == high and num < total]
    chosen = {key for (key,) in index.fetch(_CHOSEN, (json.dumps(some),))}
    for name in FACTS:
        if name not in _HIDDEN:
            kind = _TYPES[Fact(name, name).kind]
            yield {"name": name, "kind": "fact", "type": kind, "differs": True}
    for key, low, high, _num, number in keys:
        if key in FACTS:
            continue
        differs = low != high or key in chosen
        kind = "text" if number is None else "bool" if low in ("true", "false") else "number"
        yield {"name": key, "kind": "config", "type": kind, "differs": differs}
    for name, low, high in index.fetch(_METRICS):
        yield {"name": name, "kind": "metric", "type": "number", "differs": low != high}


def list_runs(site: Site, call: ApiCall) -> dict[str, Any]:
    """The rows that a query selects, or what is wrong with the query."""
    query = call.query
    run_query = RunQuery(
        where=query["where"],
        sort=query["sort"],
        search=query["search"],
        columns=query["columns"] or DEFAULT_COLUMNS,
        hides_archived=not query["archived"],
        hides_trials=not query["trials"],
        below=site.index.below,
    )
    try:
        return site.index.ask(partial(_list, run_query=run_query, query=query))
    except QueryError as error:
        (first,) = error.problems
        place = {"start": error.start, "end": error.end}
        problem = {"where": first.key, "what": error.what, "hint": first.hint, **place}
        return {"total": 0, "columns": [], "rows": [], "hidden_trials": 0, "problem": problem}


def _list(index: Index, *, run_query: RunQuery, query: Mapping[str, Any]) -> dict[str, Any]:
    if query["group"]:
        return _list_groups(index, run_query, query)
    total = count_runs(index, run_query)
    answer = query_runs(index, replace(run_query, offset=query["offset"], limit=query["limit"]))
    targets = _targets(index, run_query, answer)
    order = range(len(answer.rows))
    places = list(order if run_query.sort.strip() else reversed(order))  # the newest first
    cells = answer.columns(targets)
    rows = [
        _row(answer, place) | {"cells": [to_json_value(column[place]) for column in cells]}
        for place in places
    ]
    return _table(total, targets, rows, count_hidden_trials(index, run_query))


def _targets(index: Index, run_query: RunQuery, answer: QueryResult) -> list[Target]:
    targets = columns_of(index, run_query.text("columns"), answer)
    if len(targets) > MAX_COLUMNS:
        raise ApiError(422, f"columns: {len(targets)} are too many", f"at most {MAX_COLUMNS}")
    return targets


def _table(
    total: int, targets: Sequence[Target], rows: list[dict[str, Any]], hidden_trials: int
) -> dict[str, Any]:
    columns = [{"name": target.shown, "kind": _kind(target)} for target in targets]
    found = {"total": total, "hidden_trials": hidden_trials, "columns": columns, "rows": rows}
    return found | {"problem": None}


def _kind(target: Target) -> str:
    if isinstance(target, Fact):
        return "fact"
    return "config" if isinstance(target, ConfigKey) else "metric"


def _row(answer: QueryResult, place: int) -> dict[str, Any]:
    row = answer.rows[place]
    names = ("tag", "status", "reason", "runner", "started", "seconds", "step", "monitor", "error")
    plain = {name: row[name] for name in names}
    return {
        "id": row["run"],
        "is_fast": bool(row["fast"]),
        "is_damaged": bool(row["damage"]),
        "labels": split_labels(row["label"]),
        "archived": bool(row["archived"]),
    } | plain


def _list_groups(index: Index, run_query: RunQuery, query: Mapping[str, Any]) -> dict[str, Any]:
    answer = query_runs(index, run_query)
    targets = _targets(index, run_query, answer)
    by = REPLICATE if query["group"] == "seed" else Fact(query["group"], query["group"])
    groups = group(answer, [by])
    if run_query.sort.strip():
        for target, is_descending in orders_of(index, run_query)[:1]:
            groups = sort_groups(groups, answer.values(target), is_descending=is_descending)
    else:
        groups.sort(key=lambda one: str(answer.rows[one.places[-1]]["started"]), reverse=True)
    shown = groups[query["offset"] : query["offset"] + query["limit"]]
    columns = [(target, answer.values(target)) for target in targets]
    rows = [_group_row(answer, one, columns) for one in shown]
    return _table(len(groups), targets, rows, count_hidden_trials(index, run_query))


def _group_row(
    answer: QueryResult, one: RunGroup, columns: Sequence[tuple[Target, list[Any]]]
) -> dict[str, Any]:
    cells: list[object] = []
    intervals: list[object] = []
    for target, values in columns:
        is_mean = isinstance(target, Measure) or target == Fact("best", "best")
        mean = one.mean(values) if is_mean else None
        value = mean.mean if mean else None if is_mean else join_values(one.distinct(values))
        cells.append(to_json_value(value))
        has_interval = mean is not None and math.isfinite(mean.low)
        intervals.append([mean.low, mean.high] if mean and has_interval else None)
    ids = [answer.rows[place]["run"] for place in one.places]
    more = {"members": len(ids), "ids": ids[:MAX_ROWS], "cells": cells, "intervals": intervals}
    return _row(answer, one.places[-1]) | more
