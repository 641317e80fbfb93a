"""The comparison of runs: parameters, metrics, code, packages."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from epochal.records.compare.comparison import diff
from epochal.records.metrics.points import is_probe
from epochal.records.query.query_runs import QueryResult, RunQuery, columns_of, query_runs
from epochal.records.query.resolve_names import ConfigKey
from epochal.web.api.series import read_series
from epochal.web.site.api_error import ApiError
from epochal.web.site.numbers import to_json_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from epochal.records.compare.code import CodeComparison
    from epochal.records.compare.comparison import Comparison
    from epochal.records.compare.difference import Difference, RunValue, SectionComparison
    from epochal.records.index import Index
    from epochal.records.query.resolve_names import Target
    from epochal.web.site.route import ApiCall
    from epochal.web.site.site import Site

MAX_COMPARED = 50
MAX_SCATTERED = 250
_MAX_FOUND = 1000
_MAX_KEYS = 100
_ASIDE = ("record.", "launch.", "notify.", "log.")
"""Settings that never decide about a result."""

_TYPE = ".type"

_FIRST_CHARTS = ("val", "test", "train")
_PARTS = re.compile(r"(\D*)(\d{0,15})")
_TABLES = ("packages", "hardware", "environment", "data")


_HEADS = "SELECT run, project, tag, status FROM runs WHERE run IN (SELECT value FROM json_each(?))"
_NAMES = (
    "SELECT DISTINCT name FROM metrics WHERE count > 0 AND run_id IN "
    "(SELECT id FROM runs WHERE run IN (SELECT value FROM json_each(?))) ORDER BY name"
)


def find_metrics(site: Site, call: ApiCall) -> dict[str, Any]:
    """What a page needs to draw the curves of runs, and on request those of the first chart."""
    folders = site.folders(call.query["run"])
    ids = list(folders)

    def read(index: Index) -> dict[str, Any]:
        heads = {row[0]: row for row in index.fetch(_HEADS, (json.dumps(ids),))}
        names = ("id", "project", "tag", "status")
        runs = [dict(zip(names, heads[one], strict=True)) for one in ids if one in heads]
        metrics = [name for (name,) in index.fetch(_NAMES, (json.dumps(ids),))]
        return {"runs": runs, "metrics": metrics}

    found = site.index.ask(read)
    first = sorted(found["metrics"], key=_rank_chart)[:1] if call.query["first_curves"] else []
    return {**found, "series": read_series(site, folders, first, call.query) if first else []}


def _rank_chart(name: str) -> tuple[bool, int, list[tuple[str, int]]]:
    """Its place among the charts of the page, whose order is in web/src/chart/groups.ts."""
    prefix = name.partition("/")[0]
    place = _FIRST_CHARTS.index(prefix) if prefix in _FIRST_CHARTS else len(_FIRST_CHARTS)
    parts = [(text, int(digits or 0)) for text, digits in _PARTS.findall(name.lower())]
    return is_probe(name), place, parts


def compare_runs(site: Site, call: ApiCall) -> dict[str, Any]:
    """How runs differ; the first one is what the others are compared with."""
    ids = list(dict.fromkeys(call.query["run"]))
    found = diff(*(site.record(one) for one in ids), root=site.index.root)
    parameters = _section(found.seed) + _section(found.params)
    return {
        "runs": [_head(found, place) for place in range(len(found.records))],
        "parameters": parameters,
        "same_parameters": found.params.num_same + found.seed.num_same,
        "metrics": [
            {
                "name": one.name,
                "mode": one.mode,
                "last": [to_json_value(value) for value in one.last],
                "best": [to_json_value(value) for value in one.best],
                "is_same": one.is_same,
            }
            for one in found.metrics
        ],
        "code": _code(found.code),
        "code_source": found.code.source,
        **{name: _section(getattr(found, name)) for name in _TABLES},
    }


def _head(found: Comparison, place: int) -> dict[str, Any]:
    summary = found.records[place].summary
    names = ("id", "project", "tag", "status", "step", "epoch", "started", "ended")
    return {name: getattr(summary, name) for name in names}


def _section(section: SectionComparison) -> list[dict[str, Any]]:
    return [_difference(one) for one in section.differences]


def _difference(one: Difference) -> dict[str, Any]:
    return {
        "key": one.key,
        "values": [_value(side) for side in one.sides],
        "places": ["" if side is None else side.where for side in one.sides],
        "is_minor": one.is_minor,
    }


def _value(side: RunValue | None) -> object:
    return None if side is None else to_json_value(side.value)


def _code(code: CodeComparison) -> list[dict[str, Any]]:
    files = []
    for one in code.files:
        first, *others = one.versions
        status = "changed"
        if first is None:
            status = "added"
        elif all(version is None for version in others):
            status = "removed"
        files.append(
            {
                "path": one.path,
                "status": status,
                "added": one.added,
                "removed": one.removed,
                "diff": "\n".join(one.lines),
                "note": one.note,
            }
        )
    return files


def scatter_runs(site: Site, call: ApiCall) -> dict[str, Any]:
    """Settings and metrics of many runs side by side, and which settings mattered."""
    ids, query = list(dict.fromkeys(call.query["run"])), call.query
    if bool(ids) == bool(query["where"].strip()):
        raise ApiError(422, "run, where: give one of them", "run=ID&run=ID, or where=QUERY")
    site.folders(ids)  # they exist
    return site.index.ask(partial(_scatter, site=site, ids=ids, query=query))


def _scatter(
    index: Index, *, site: Site, ids: Sequence[str], query: Mapping[str, Any]
) -> dict[str, Any]:
    run_query = RunQuery(
        where=query["where"],
        columns=query["columns"] or "seed",
        below=site.index.below,
        limit=_MAX_FOUND if query["where"].strip() else None,
    )
    found = query_runs(index, run_query)
    answer = QueryResult(index, [row for row in found.rows if not ids or row["run"] in ids])
    targets: list[Target] = [] if query["columns"] else [*_deciding_keys(answer)]
    targets = targets or columns_of(index, run_query.text("columns"), answer)
    metric = query["metric"] or _find_metric(answer)
    if metric and metric not in {one.shown for one in targets}:
        targets += columns_of(index, replace(run_query, columns=metric).text("columns"), answer)
    columns = {
        one.shown: values for one, values in zip(targets, answer.columns(targets), strict=True)
    }
    differing = {
        name: values
        for name, values in columns.items()
        if name == metric or query["columns"] or len({*map(str, values)}) > 1
    }
    keys = [one.shown for one in targets if isinstance(one, ConfigKey) and one.shown in differing]
    judged = [
        ({key: columns[key][n] for key in keys}, float(columns[metric][n]))
        for n in range(len(answer.rows))
        if metric in columns and isinstance(columns[metric][n], int | float)
    ]
    shares = {} if site.sweeps is None else site.sweeps.measure_importance(keys, judged)
    return {
        "columns": list(differing),
        "metric": metric or None,
        "runs": [
            {
                "id": row["run"],
                "tag": row["tag"],
                "status": row["status"],
                "values": [to_json_value(values[n]) for values in differing.values()],
            }
            for n, row in enumerate(answer.rows)
        ],
        "importance": dict(shares),
    }


def _deciding_keys(answer: QueryResult) -> list[ConfigKey]:
    """The settings in which the runs differ, without those that only follow another class."""
    keys = [one for one in answer.changed() if not one.key.startswith(_ASIDE)]
    types = {one.key for one in keys if one.key.endswith(_TYPE)}
    return [
        one
        for one, values in zip(keys, answer.columns(keys), strict=True)
        if not (_has_one_value(values) and any(f"{part}{_TYPE}" in types for part in _owners(one)))
    ][:_MAX_KEYS]


def _has_one_value(values: Sequence[object]) -> bool:
    """Whether the runs that have a value have the same one, and others have none."""
    return None in values and len({str(value) for value in values if value is not None}) == 1


def _owners(target: ConfigKey) -> list[str]:
    """The sections that a key is in: ``model`` and ``model.head`` of ``model.head.width``."""
    if target.key.endswith(_TYPE):
        return []
    parts = target.key.split(".")
    return [".".join(parts[:n]) for n in range(1, len(parts))]


def _find_metric(answer: QueryResult) -> str:
    """The metric that most of the runs monitor."""
    names = [str(row["monitor"] or "") for row in answer.rows]
    counts = Counter(name.lstrip("+-") for name in names if name)
    return counts.most_common(1)[0][0] if counts else ""
