"""Reads a run folder into rows of the index: columns, parameters, metrics and searchable text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, final

from epochal import durable
from epochal.records.code import read_code_digest
from epochal.records.folder.folder import read_parent
from epochal.records.folder.labels import read_labels
from epochal.records.folder.provenance import get_newest_origins
from epochal.records.folder.reader import (
    desc_of,
    describe_error,
    find_monitor,
    read_folder,
    seconds_of,
    tag_of,
)
from epochal.records.index.index_database import MAX_INTEGER, MIN_INTEGER
from epochal.records.index.replicates import replicate_key
from epochal.records.layout.coerce import as_float, as_mapping, as_text, iter_leaves
from epochal.records.metrics.points import POINT_BYTES
from epochal.records.metrics.summary import summarise_series

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from epochal.records.folder.reader import RunRecord

MetricRow = tuple[str, float | None, float | None, float | None, int, int]
"""Name, last, low, high, last step, count."""


@final
@dataclass(frozen=True, slots=True)
class RunRows:
    """The rows of one run."""

    values: Mapping[str, Any]
    """The columns of ``runs``, without ``path`` and ``stamp``."""

    params: Iterable[Param]
    metrics: list[MetricRow]
    words: list[str]


def read_run_rows(folder: Path, *, uses_cache: bool = True) -> RunRows:
    """Read one run; damaged values are empty and listed in ``damage``."""
    record = read_folder(folder)
    provenance = record.provenance
    params = read_params(provenance) or params_from_values(record.expanded)
    points = count_points(folder)  # before reading, so that later points are read next time
    metrics = read_metrics(record, uses_cache=uses_cache)
    values = {
        **_run_columns(record),
        "best": find_best(record, metrics),
        "step": find_step(record, metrics),
        "points": points,
        "replicate": replicate_key(record.run, provenance),
    }
    return RunRows(
        {name: _bindable(value) for name, value in values.items()},
        [_escape_param(one) for one in params],
        metrics,
        build_search_text(record, params),
    )


def escape_surrogates(text: str) -> str:
    """The text with escapes for lone surrogates, which SQLite refuses."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _escape_param(one: Param) -> Param:
    if one.key.isascii() and (one.text is None or one.text.isascii()):
        return one
    return one._replace(
        key=escape_surrogates(one.key),
        text=None if one.text is None else escape_surrogates(one.text),
    )


def _run_columns(record: RunRecord) -> dict[str, Any]:
    run, summary = record.run, record.summary
    parent, trial = read_parent(run), as_mapping(run.get("trial"))
    labels = read_labels(record.path)
    return {
        "run": summary.id,
        "project": summary.project,
        "tag": tag_of(record),
        "desc": desc_of(record),
        "label": labels.text,
        "archived": int(labels.is_archived),
        "variant": as_text(run.get("variant")),
        "fast": int(run.get("fast") is True),
        "status": summary.status,
        "reason": summary.reason,
        "runner": summary.runner,
        "started": summary.started,
        "ended": summary.ended,
        "seconds": seconds_of(record),
        "epoch": summary.epoch,
        "attempt": summary.attempt,
        "rollbacks": summary.rollbacks,
        "seed": _seed(run.get("seed")),
        "host": as_text(record.status.get("host")),
        "parent": "" if parent is None else parent.run,
        "parent_kind": "" if parent is None else parent.kind,
        "sweep": as_text(trial.get("sweep")),
        "trial": trial["number"] if isinstance(trial.get("number"), int) else None,
        "monitor": as_text(run.get("monitor")),
        "code": read_code_digest(record.path, summary.attempt),
        "error": describe_error(record.result),
        "result": durable.encode_json(as_mapping(record.result.get("metrics"))).decode(),
        "damage": "\n".join(summary.damage),
    }


def count_points(folder: Path) -> int:
    """The number of points of the run in ``folder``."""
    try:
        return (folder / "metrics.bin").stat().st_size // POINT_BYTES
    except OSError:  # it has none yet
        return 0


def read_metrics(record: RunRecord, *, uses_cache: bool = True) -> list[MetricRow]:
    """The metrics of a run; the last value is that of its result, if there is one.

    They differ for training: points are means of a few steps, results are means of an epoch.
    """
    final = {
        name: as_float(value) for name, value in as_mapping(record.result.get("metrics")).items()
    }
    rows = [
        (
            escape_surrogates(name),
            final.pop(name, as_float(one.last)),
            as_float(one.low),
            as_float(one.high),
            one.last_step,
            one.count,
        )
        for name, one in summarise_series(record.path, uses_cache=uses_cache).items()
    ]
    step = record.summary.step
    return rows + [
        (escape_surrogates(str(name)), value, None, None, step, 0) for name, value in final.items()
    ]


def find_step(record: RunRecord, metrics: list[MetricRow]) -> int:
    """The last known step: a killed run may have logged later steps than its status."""
    return max([record.summary.step, *[row[4] for row in metrics]])


def find_best(record: RunRecord, metrics: list[MetricRow]) -> float | None:
    """The best value of the monitored metric: from the result, or so far."""
    if record.result:
        return as_float(record.result.get("best"))
    name, mode = find_monitor(record)
    for known, _, low, high, *_ in metrics:
        if known == escape_surrogates(name):
            return high if mode == "max" else low
    return None


def _bindable(value: object) -> object:
    if isinstance(value, int):  # a damaged record may have one that is too large for SQLite
        return max(MIN_INTEGER, min(value, MAX_INTEGER))
    return escape_surrogates(value) if isinstance(value, str) else value


def _seed(value: object) -> int | str | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if MIN_INTEGER <= value <= MAX_INTEGER else str(value)


class Param(NamedTuple):
    """One value of a config."""

    key: str
    text: str | None
    """As it reads: ``0.001``, ``true``, ``[1,2]``; None for null."""

    number: float | None
    """None for other types; a boolean is 1 or 0. An integer beyond 64 bits is rounded."""

    is_default: bool
    """Whether no config and no override set it."""


def read_params(provenance: Mapping[str, Any]) -> list[Param]:
    """Every value in ``provenance.json``, and the lists that contain them."""
    found: dict[str, Param] = {}
    leaves: dict[str, tuple[Any, bool]] = {}
    for key, origin in get_newest_origins(provenance).items():
        value, is_default = origin.get("value"), origin.get("layer") == "default"
        leaves[key] = value, is_default
        found[key] = _param(key, value, is_default=is_default)
    for key, value, is_default in _lists(leaves):
        found.setdefault(key, _param(key, value, is_default=is_default))
    return list(found.values())


def params_from_values(values: Mapping[str, Any]) -> list[Param]:
    """The same for plain values whose origin is lost."""
    provenance = {key: [{"value": value}] for key, value in iter_leaves(values)}
    return read_params(provenance)


def _param(key: str, value: object, *, is_default: bool) -> Param:
    if value is None:
        return Param(key, None, None, is_default)
    if isinstance(value, bool):
        return Param(key, "true" if value else "false", int(value), is_default)
    if isinstance(value, int | float):
        return Param(key, repr(value), _number(value), is_default)
    if isinstance(value, str):
        return Param(key, value, None, is_default)
    return Param(key, durable.encode_json(value).decode(), None, is_default)


def _number(value: float) -> float | None:
    is_kept = isinstance(value, int) and MIN_INTEGER <= value <= MAX_INTEGER
    return value if is_kept else as_float(value)


def _lists(leaves: Mapping[str, tuple[Any, bool]]) -> Iterator[tuple[str, object, bool]]:
    """Each list, rebuilt from its elements."""
    owners: dict[str, list[str]] = {}
    for key in leaves:
        words = key.split(".")
        for i, word in enumerate(words[1:], start=1):
            if word == "0":
                owners.setdefault(".".join(words[:i]), [])
    if not owners:
        return
    for key in leaves:
        words = key.split(".")
        for i in range(1, len(words)):
            if (owner := ".".join(words[:i])) in owners:
                owners[owner].append(key)
    for owner, keys in owners.items():
        tree: dict[str, Any] = {}
        for key in keys:
            _set_nested(tree, key[len(owner) + 1 :].split("."), leaves[key][0])
        yield owner, _as_lists(tree), all(leaves[key][1] for key in keys)


def _set_nested(tree: dict[str, Any], words: list[str], value: object) -> None:
    for word in words[:-1]:
        below = tree.setdefault(word, {})
        if not isinstance(below, dict):  # a damaged file may name a leaf and a key below it
            return
        tree = below
    tree[words[-1]] = value


def _as_lists(value: object) -> object:
    """Turn mappings with the keys 0, 1, 2, ... back into lists."""
    if not isinstance(value, dict) or not value:
        return value
    if list(value) == [str(i) for i in range(len(value))]:
        return [_as_lists(child) for child in value.values()]
    return {key: _as_lists(child) for key, child in value.items()}


_UNSPACED = re.compile(r"([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])")
"""Kana and Chinese characters, which have no spaces between words: each is a word."""

_MAX_VALUE = 1000
_README_TEMPLATE = re.compile(
    r"^---\n+`metrics\.bin` holds all points.*?(\n```python\n.*?\n```|\Z)|^_Write here .*_$",
    re.DOTALL | re.MULTILINE,
)


def build_search_text(record: RunRecord, params: Iterable[Param]) -> list[str]:
    """What users wrote about a run; keys and values that were set; keys and values of defaults."""
    summary = record.summary
    names = (summary.id, summary.project, summary.tag, str(record.run.get("variant") or ""))
    about = "\n".join((*names, strip_readme_template(record.readme)))
    lines: tuple[list[str], list[str]] = ([], [])
    for one in params:
        lines[one.is_default].append(f"{one.key} {(one.text or '')[:_MAX_VALUE]}")
    return [_separate_characters(text) for text in (about, *map("\n".join, lines))]


def strip_readme_template(readme: str) -> str:
    """The text of a README without the template of every run."""
    return _README_TEMPLATE.sub("", readme).strip()


def to_fts_query(words: Sequence[str]) -> str:
    """An FTS5 query for runs that have words with all these prefixes."""
    tokens = [_separate_characters(word.replace('"', " ")) for word in words]
    return " AND ".join(f'"{token}"*' for token in tokens if any(map(str.isalnum, token)))


def _separate_characters(text: str) -> str:
    # SQLite refuses lone surrogates, which a damaged file may have.
    return _UNSPACED.sub(r" \1 ", text).encode("utf-8", "replace").decode()
