"""The comparison of runs: parameters, metrics, code, packages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from epochal.records.compare.comparison import diff
from epochal.web.numbers import to_json_value

if TYPE_CHECKING:
    from epochal.records.compare.code import CodeComparison
    from epochal.records.compare.comparison import Comparison
    from epochal.records.compare.difference import Difference, RunValue, SectionComparison
    from epochal.web.routes import ApiCall
    from epochal.web.site import Site

MAX_COMPARED = 50
_TABLES = ("packages", "hardware", "environment", "data")


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
