"""Tables of runs and groups of runs, with the columns that fit the terminal."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

from epochal import durable
from epochal.cli.draw.text_table import format_table, shorten
from epochal.records.folder.labels import split_labels
from epochal.records.layout.run_status import EVALUATIONS
from epochal.records.metrics.points import TRAIN_PREFIX, is_probe
from epochal.records.query.query_runs import (
    RunQuery,
    count_hidden_runs,
    explain_no_match,
    query_runs,
)
from epochal.records.query.resolve_names import Fact, Measure
from epochal.records.query.syntax import format_moment
from epochal.records.query.tabulate import join_values
from epochal.text.command import epochal_command
from epochal.text.formatting import format_count, format_seconds, format_value
from epochal.text.terminal import max_display_width, terminal_width

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from epochal.records.index import Index
    from epochal.records.query.query_runs import QueryResult
    from epochal.records.query.resolve_names import Target
    from epochal.records.query.tabulate import RunGroup

_HEADER = (
    "run",
    "project",
    "tag",
    "label",
    "desc",
    "variant",
    "runner",
    "status",
    "reason",
    "resumed",
    "steps",
    "time",
    "best",
)
_DIFFERS = "differs"
_RESULT = "result"
_TEXT_WIDTHS = (60, 40, 30, 20)
_SHORT_ID = 4
_ALWAYS_SHOWN = {"run", "status", _RESULT}
_DROPPABLE = (
    "reason",
    "resumed",
    "project",
    "time",
    "steps",
    "runner",
    "variant",
    "desc",
    "label",
    "tag",
)
"""Columns to drop on a narrow terminal, in this order; constant columns are dropped first."""

_MIN_RESULT = 30
_TINY_RESULT = 12
_MAX_CELL = 60
_MAX_CHANGED = 6
_MAX_LISTED = 3


def format_runs(result: QueryResult, asked: Sequence[Target], *, width: int | None = None) -> str:
    """A table with the default columns, what differs, what the query names, and the results."""
    return fit_columns(list_runs(result, asked), [target.shown for target in asked], width=width)


def list_runs(result: QueryResult, asked: Sequence[Target]) -> dict[str, list[str]]:
    """The columns that are not empty: the default ones, what differs, asked ones, the results."""
    shown = [target for target in asked if target.shown not in (*_HEADER, _RESULT)]
    columns = {name: _facts(name, result.rows) for name in _HEADER}
    columns[_DIFFERS] = _describe_differences(result, asked)
    columns |= {target.shown: _cells(result, target) for target in shown}
    columns[_RESULT] = [_outcome(row) for row in result.rows]
    return _without_empty(columns, {target.shown for target in asked} | _ALWAYS_SHOWN)


def fit_columns(
    columns: dict[str, list[str]], asked: Sequence[str], *, width: int | None = None
) -> str:
    """The table of ``list_runs`` with the columns that fit the terminal, ``asked`` in any case."""
    kept, columns = {*asked, *_ALWAYS_SHOWN}, dict(columns)
    texts = [name for name in ("desc", _DIFFERS) if name in columns and name not in kept]
    while True:
        for limit in _TEXT_WIDTHS:  # a shorter text is better than none
            shortened = {name: [shorten(cell, limit) for cell in columns[name]] for name in texts}
            fitted = _fit({**columns, **shortened}, kept, width)
            if fitted.keys() >= {*texts}:
                return _format(fitted, width)
        del columns[texts.pop(0)]


def format_columns(
    result: QueryResult, targets: Sequence[Target], *, width: int | None = None
) -> str:
    """A table with the run and exactly the requested columns."""
    return _format(list_columns(result, targets), width)


def list_columns(result: QueryResult, targets: Sequence[Target]) -> dict[str, list[str]]:
    """The run and exactly the requested columns."""
    run = Fact("run", "run")
    wanted = targets if run in targets else [run, *targets]
    return {target.shown: _cells(result, target) for target in wanted}


def format_groups(
    result: QueryResult, groups: Sequence[RunGroup], by: Sequence[Target], asked: Sequence[Target]
) -> str:
    """A table with one line per group: newest run, number of runs, means with intervals."""
    columns = {**_group_heads(result, groups), **_group_columns(result, groups, by)}
    facts: list[Target] = [Fact(name, name) for name in ("project", "tag", "runner", "seed")]
    changed = [one for one in result.changed() if one not in (*asked, *by)][:_MAX_CHANGED]
    for target in [*facts, *changed]:
        values = result.values(target)
        found = [group.distinct(values) for group in groups]
        if all(len(one) <= _MAX_LISTED for one in found) or target in facts[3:]:
            columns[target.shown] = [_join_cell(target, one) for one in found]
    columns |= _group_columns(result, groups, [Fact("best", "best"), *asked])
    columns[_RESULT] = _group_results(result, groups, list(columns))
    kept = {target.shown for target in (*by, *asked)} | {"newest", "runs", _RESULT}
    return _format(_fit(_without_empty(columns, kept), kept, None), None)


def format_group_columns(
    result: QueryResult, groups: Sequence[RunGroup], asked: Sequence[Target]
) -> str:
    """A table with the name of the group and exactly the requested columns."""
    return _format({**_group_heads(result, groups), **_group_columns(result, groups, asked)}, None)


def describe_no_runs(index: Index, run_query: RunQuery, folder: Path) -> str:
    """Why a list of the runs below ``folder`` is empty."""
    total = len(query_runs(index, RunQuery(below=run_query.below)).rows)
    hidden = count_hidden_runs(index, run_query)
    if hidden:
        runs, option = format_count(hidden, "matching run"), f"{run_query.marks}archived"
        return f"{runs} below {folder}, all archived; {option} lists them"
    if not total:
        return f"no runs below {folder}; `{epochal_command()} run FILE` creates one"
    first = f"none of the {total:,} runs below {folder} matches"
    return "\n".join([first, *(f"  {line}" for line in explain_no_match(index, run_query))])


def run_to_json(result: QueryResult, row: Mapping[str, Any]) -> dict[str, object]:
    """The JSON of one run in a list."""
    texts = ("project", "tag", "runner", "status")
    more = {name: row[name] or "" for name in ("reason", "started", "ended")}
    return {
        "path": str(result.path(row)),
        "variant": row["variant"],
        "fast": bool(row["fast"]),
        "labels": split_labels(row["label"]),
        "archived": bool(row["archived"]),
        "id": row["run"],
        **{name: row[name] or "" for name in texts},
        **{name: row[name] for name in ("attempt", "step", "epoch", "seed", "seconds")},
        **more,
        "best": row["best"],
        "metrics": _metrics(row),
        "damage": (row["damage"] or "").splitlines(),
    }


def format_cell(target: Target, value: object) -> str:
    """One value as a table shows it."""
    if value is None:
        return ""
    if isinstance(target, Fact) and isinstance(value, str | float | int):
        if target.kind == "time":
            return format_moment(str(value))
        if target.kind == "length":
            return format_seconds(float(value))
    if isinstance(value, bool):
        return "true" if value else "false"
    line = format_value(value).partition("\n")[0]
    return shorten(line, _MAX_CELL)


def _describe_differences(result: QueryResult, asked: Sequence[Target]) -> list[str]:
    """The settings of each training that most others do not share, as they would be typed."""
    trainings = result.trainings()
    ids = {row["id"] for row in trainings.rows}
    targets: list[Target] = [*trainings.changed()[:_MAX_CHANGED], Fact("seed", "seed")]
    cells: list[list[str]] = [[] for _ in result.rows]
    is_training = [row["id"] in ids for row in result.rows]
    for target in (one for one in targets if one not in asked):
        values = result.values(target)
        names = [str(value) for value in values]
        counts = Counter(itertools.compress(names, is_training))
        usual, count = counts.most_common(1)[0] if counts else ("", 0)
        has_usual = count > len(ids) / 2
        texts: dict[tuple[type, str], str] = {}
        for place in itertools.compress(range(len(values)), is_training):
            value, name = values[place], names[place]
            if value is None or (has_usual and name == usual):
                continue
            if (type(value), name) not in texts:
                text = f"{target.shown}={format_cell(target, value)}"
                texts[type(value), name] = text
            cells[place].append(texts[type(value), name])
    return ["  ".join(cell) for cell in cells]


def _cells(result: QueryResult, target: Target) -> list[str]:
    return [format_cell(target, value) for value in result.values(target)]


def _facts(name: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """One of the default columns."""
    if name == "reason":
        return [row["reason"] or "" if row["reason"] != row["status"] else "" for row in rows]
    if name == "resumed":
        counts = [row["attempt"] - row["rollbacks"] for row in rows]
        return [f"{count}x" if count > 0 else "" for count in counts]
    column = {"steps": "step", "time": "seconds"}.get(name, name)
    target, values = Fact(name, column), [row[column] for row in rows]
    texts = {value: format_cell(target, value) for value in {*values}}  # few of them differ
    cells = [texts[value] for value in values]
    if name == "status":
        notes = [" (fast)" * bool(row["fast"]) + " (archived)" * row["archived"] for row in rows]
        return [cell + note for cell, note in zip(cells, notes, strict=True)]
    if name == "desc":
        return [cell or _describe_evaluation(row) for cell, row in zip(cells, rows, strict=True)]
    return cells


def _describe_evaluation(row: Mapping[str, Any]) -> str:
    is_evaluation = row["runner"] in EVALUATIONS and row["parent"]
    return f"{row['runner']} of {row['parent'][-_SHORT_ID:]}" if is_evaluation else ""


def _outcome(row: Mapping[str, Any]) -> str:
    """The error of a run, or its metrics (monitored first), the reason it stopped, or damage."""
    if row["error"]:
        return str(row["error"])
    metrics, monitor = _metrics(row), row["monitor"]
    figures = [
        f"{name} {format_value(metrics[name])}" for name in _select_metrics(metrics, monitor)
    ]
    damage = "; ".join((row["damage"] or "").splitlines())
    return "  ".join(figures) or row["reason"] or damage


def _select_metrics(names: Mapping[str, object], monitor: str | None) -> list[str]:
    """The metrics without those of training and of probes, the monitored metric first."""
    shown = [
        name
        for name in names
        if name == monitor or not (name.startswith(TRAIN_PREFIX) or is_probe(name))
    ]
    return sorted(shown, key=lambda name: name != monitor)


def _metrics(row: Mapping[str, Any]) -> dict[str, Any]:
    found = durable.decode_json((row["result"] or "{}").encode())
    return found if isinstance(found, dict) else {}


def _count(group: RunGroup) -> str:
    whole, counted = len(group.places), len(group.counted)
    return str(whole) if whole == counted else f"{counted} of {whole}"


def _group_heads(result: QueryResult, groups: Sequence[RunGroup]) -> dict[str, list[str]]:
    ages = [(row["started"] or "", place) for place, row in enumerate(result.rows)]
    newest = [max(group.places, key=ages.__getitem__) for group in groups]
    return {
        "newest": [str(result.rows[place]["run"]) for place in newest],
        "runs": [_count(group) for group in groups],
    }


def _group_columns(
    result: QueryResult, groups: Sequence[RunGroup], targets: Sequence[Target]
) -> dict[str, list[str]]:
    columns = {}
    for target in targets:
        values = result.values(target)
        columns[target.shown] = [_group_cell(target, group, values) for group in groups]
    return columns


def _group_cell(target: Target, group: RunGroup, values: Sequence[Any]) -> str:
    if isinstance(target, Measure) or target.shown == "best":
        mean = group.mean(values)
        return str(mean) if mean else ""
    return _join_cell(target, group.distinct(values))


def _join_cell(target: Target, distinct: Sequence[Any]) -> str:
    """The values of the runs of a group, or their number if there are many."""
    if len(distinct) == 1:
        return format_cell(target, distinct[0])
    if len(distinct) > 2 * _MAX_LISTED:
        return f"{len(distinct)} values"
    return format_cell(target, join_values(distinct))


def _group_results(
    result: QueryResult, groups: Sequence[RunGroup], shown: Sequence[str]
) -> list[str]:
    """The means of the final metrics of each group."""
    ends = [_metrics(row) for row in result.rows]
    lines = []
    for group in groups:
        first = group.places[-1]
        figures = []
        for name in _select_metrics(ends[first], result.rows[first]["monitor"]):
            mean = group.mean({place: ends[place].get(name) for place in group.counted})
            if mean is not None and name not in shown:
                figures.append(f"{name} {mean}")
        lines.append("  ".join(figures))
    return lines


def _without_empty(columns: dict[str, list[str]], kept: set[str]) -> dict[str, list[str]]:
    return {name: cells for name, cells in columns.items() if name in kept or any(cells)}


def _fit(columns: dict[str, list[str]], kept: set[str], width: int | None) -> dict[str, list[str]]:
    """Drop columns until the table fits the terminal; constant columns first."""
    limit = width or terminal_width()
    names = [name for name in _DROPPABLE if name in columns and name not in kept]
    names += [name for name in reversed(columns) if name not in (*names, *kept, "best")]
    same = [name for name in names if len(set(columns[name])) == 1 and len(columns[name]) > 1]
    widths = {name: max_display_width([name, *cells]) for name, cells in columns.items()}
    for name in dict.fromkeys((*same, *names)):
        if _has_room(widths.values(), limit, _MIN_RESULT):
            break
        del widths[name]
    if "best" in widths and not _has_room(widths.values(), limit, _TINY_RESULT):
        widths.pop(_RESULT, None)
    return {name: columns[name] for name in widths}


def _has_room(widths: Iterable[int], limit: int, least: int) -> bool:
    """Whether columns fit, the last one at full width or at least ``least`` wide."""
    *others, last = widths
    return sum(others) + 2 * len(others) + min(least, last) <= limit


def _format(columns: Mapping[str, Sequence[str]], width: int | None) -> str:
    return format_table(
        list(columns), [list(line) for line in zip(*columns.values(), strict=True)], width=width
    )
