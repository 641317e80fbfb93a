"""Finds runs in the index, sorts them, reads their values, and explains why none was found."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from epochal.errors import suggest
from epochal.records.index.index_database import INTERNAL_COLUMNS, MAX_INTEGER, RUN_COLUMNS
from epochal.records.layout.run_folders import EPOCHAL_DIR, INDEX_FILE
from epochal.records.layout.run_status import EVALUATIONS
from epochal.records.query.compile_sql import Compiler, Sql
from epochal.records.query.grammar import parse_names, parse_query, parse_sort_keys
from epochal.records.query.resolve_names import (
    AGE,
    ARCHIVED,
    FACTS,
    ConfigKey,
    Fact,
    Measure,
    NameResolver,
)
from epochal.records.query.syntax import BoolOp, Compare, Missing, Not, QueryText, format_moment
from epochal.text.formatting import format_seconds, format_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from epochal.records.index import Index
    from epochal.records.query.resolve_names import Target
    from epochal.records.query.syntax import Name, Query

CHANGED = "changed"
"""In a list of columns: all config keys in which the runs differ."""

_MAX_PARENTS = 3
_FEW_RUNS = 500
_MANY_COLUMNS = 8
_MOST_COLUMNS = 100
_COLUMNS = ("id", *(name for name in RUN_COLUMNS if name not in INTERNAL_COLUMNS))


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class RunQuery:
    """Which runs, in which order."""

    where: str = ""
    sort: str = ""
    """Names, each followed by ``desc`` if the largest comes first; by start time if empty."""

    columns: str = ""
    search: str = ""
    """Words that README, tag or config must contain."""

    limit: int | None = None
    """The maximum number of runs: the first ones, without ``sort`` the newest."""

    offset: int = 0
    """How many of these to skip."""

    words: tuple[str, ...] = ()
    """Parts of the path or tag."""

    status: str = ""
    hides_archived: bool = False
    """Whether archived runs are left out, unless ``where`` names them."""

    hides_trials: bool = False
    """Whether trials of sweeps are left out, unless ``where`` names their sweep or number."""

    below: str = ""
    """Only runs below this folder, relative to the root."""

    marks: str = ""
    """Prefix of argument names in messages, such as ``--``."""

    def text(self, name: str) -> QueryText:
        """One of its texts, with the name of the argument for messages."""
        return QueryText(getattr(self, name), f"{self.marks}{name}")


@final
class QueryResult:
    """The runs that were found, in order, and their values."""

    def __init__(self, index: Index, rows: list[dict[str, Any]]) -> None:
        self.root = index.root
        self.rows = rows
        """All columns of ``runs`` and the age, for each run; None where unknown."""

        self._index = index
        self._ids = [row["id"] for row in rows]

    def path(self, row: Mapping[str, Any]) -> Path:
        """The folder of a run."""
        return self.root / str(row["path"])

    def values(self, target: Target) -> list[Any]:
        """The value of each run; None where it has none."""
        if target == Fact(target.shown, "path"):
            return [str(self.path(row)) for row in self.rows]
        if isinstance(target, Fact):
            return [row[target.column] for row in self.rows]
        if isinstance(target, ConfigKey):
            sql = "SELECT run_id, text, number FROM params WHERE key = ?"
            found = {id_: decode(*value) for id_, *value in self._fetch(sql, target.key)}
        else:
            sql = f"SELECT run_id, {target.column} FROM metrics WHERE name = ?"
            nan = float("nan")  # SQLite stores NaN as NULL
            found = {
                id_: nan if value is None else value for id_, value in self._fetch(sql, target.name)
            }
        return [found.get(id_) for id_ in self._ids]

    def columns(self, targets: Sequence[Target]) -> list[list[Any]]:
        """The same for many targets at once, which is faster for few runs."""
        keys = [one.key for one in targets if isinstance(one, ConfigKey)]
        if len(keys) < _MANY_COLUMNS or len(self._ids) > _FEW_RUNS:
            return [self.values(target) for target in targets]
        # The + makes SQLite scan the keys of each run.
        key = "key" if len(keys) < _MOST_COLUMNS else "+key"
        rows = self._index.fetch(
            "SELECT run_id, key, text, number FROM params WHERE run_id IN "
            f"(SELECT value FROM json_each(?)) AND {key} IN (SELECT value FROM json_each(?))",
            (json.dumps(self._ids), json.dumps(keys)),
        )
        found: dict[str, dict[int, Any]] = {}
        for id_, key, *value in rows:
            found.setdefault(key, {})[id_] = decode(*value)
        return [
            [*map(found.get(one.key, {}).get, self._ids)]
            if isinstance(one, ConfigKey)
            else self.values(one)
            for one in targets
        ]

    def trainings(self) -> QueryResult:
        """The undamaged trainings, without those of ``--fast`` if there are others."""
        found = [row for row in self.rows if row["runner"] not in EVALUATIONS]
        found = [row for row in found if not row["damage"]]
        return QueryResult(self._index, [row for row in found if not row["fast"]] or found)

    def changed(self) -> list[ConfigKey]:
        """The config keys in which the runs differ, except those that are also columns of a run.

        A key that only some runs have counts if it was set in one of them. Keys with the most
        values come first.
        """
        ((total,),) = self._index.fetch("SELECT count(*) FROM runs", ())
        # + scans all keys instead of the index.
        owner = "run_id" if len(self._ids) <= _FEW_RUNS else "+run_id"
        where, values = f"{owner} IN (SELECT value FROM json_each(?))", [json.dumps(self._ids)]
        if len(self._ids) == total:
            where, values = "true", []
        rows = self._index.fetch(
            f"SELECT key, max(text LIKE '[%{{%') FROM params WHERE {where} GROUP BY key "
            "HAVING count(DISTINCT IFNULL(text, x'00')) > 1 "
            "OR (count(*) < ? AND NOT min(is_default)) "
            "ORDER BY count(DISTINCT text) DESC, key",
            (*values, len(self._ids)),
        )
        found = {key: bool(has_parts) for key, has_parts in rows if key not in FACTS}
        return [ConfigKey(key, key) for key in found if not _is_redundant(key, found)]

    def metrics(self) -> list[Measure]:
        """The metrics that any of the runs has."""
        rows = self._index.fetch(
            "SELECT DISTINCT name FROM metrics WHERE run_id IN (SELECT value FROM json_each(?)) "
            "ORDER BY name",
            (json.dumps(self._ids),),
        )
        return [Measure(name, name, "last") for (name,) in rows]

    def _fetch(self, sql: str, name: str) -> list[tuple[Any, ...]]:
        if len(self._ids) > _FEW_RUNS:
            return self._index.fetch(sql, (name,))
        few = f"{sql} AND run_id IN (SELECT value FROM json_each(?))"
        return self._index.fetch(few, (name, json.dumps(self._ids)))


def query_runs(index: Index, run_query: RunQuery, *, now: datetime | None = None) -> QueryResult:
    """The runs that match a query; ConfigError points at the mistake."""
    names = NameResolver(index.fetch, now=now)
    conditions = list(_conditions(index, run_query, names))
    orders = list(_orders(run_query, names))
    is_newest = not orders
    if is_newest:  # newest first for LIMIT, reversed below
        orders = [Sql("runs.started DESC, runs.run DESC")]
    where = " AND ".join(f"({one.text})" for one in conditions) or "1"
    order = ", ".join(one.text for one in orders)
    values = [value for one in (*conditions, *orders) for value in one.values]
    limit = -1 if run_query.limit is None else min(max(run_query.limit, 0), MAX_INTEGER)
    columns = ", ".join(f"runs.{name}" for name in _COLUMNS)
    age = "(julianday(?) - julianday(runs.started)) * 86400"
    found = index.fetch(
        f"SELECT {columns}, {age} FROM runs WHERE {where} ORDER BY {order}, runs.started, runs.id "
        "LIMIT ? OFFSET ?",
        (f"{names.now.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}", *values, limit, run_query.offset),
    )
    rows = [
        {name: None if value == "" else value for name, value in zip(_NAMES, row, strict=True)}
        for row in found
    ]
    for row in rows:
        if isinstance(row["seed"], str):  # an integer too large for SQLite
            row["seed"] = int(row["seed"])
    return QueryResult(index, rows[::-1] if is_newest else rows)


_NAMES = (*_COLUMNS, AGE)
_TRIAL_NAMES = ("sweep", "trial")
_IS_TRIAL = "(runs.sweep != '')"


def count_runs(index: Index, run_query: RunQuery) -> int:
    """How many runs match, without a limit; raises ConfigError as ``query_runs`` does."""
    return _count(index, list(_conditions(index, run_query, NameResolver(index.fetch))))


def count_hidden_runs(index: Index, run_query: RunQuery) -> int:
    """How many archived runs match a query that hides them."""
    if not run_query.hides_archived or _names_any(run_query, (ARCHIVED,)):
        return 0
    names, shown = NameResolver(index.fetch), replace(run_query, hides_archived=False)
    return _count(index, [Sql("runs.archived"), *_conditions(index, shown, names)])


def count_hidden_trials(index: Index, run_query: RunQuery) -> int:
    """How many trials of sweeps match a query that hides them."""
    if not run_query.hides_trials or _names_any(run_query, _TRIAL_NAMES):
        return 0
    if not index.fetch(f"SELECT 1 FROM runs WHERE {_IS_TRIAL} LIMIT 1"):
        return 0
    names, shown = NameResolver(index.fetch), replace(run_query, hides_trials=False)
    return _count(index, [Sql(_IS_TRIAL), *_conditions(index, shown, names)])


def _count(index: Index, conditions: Sequence[Sql]) -> int:
    where = " AND ".join(f"({one.text})" for one in conditions) or "1"
    values = [value for one in conditions for value in one.values]
    return int(index.fetch(f"SELECT count(*) FROM runs WHERE {where}", values)[0][0])


def columns_of(index: Index, query: QueryText, result: QueryResult) -> list[Target]:
    """The columns of a list of names; ``*`` and ``changed`` may give several."""
    if not query.text.strip():
        return []
    names = NameResolver(index.fetch)
    found: list[Target] = []
    for name in parse_names(query):
        if name.text == CHANGED and name.function == "last" and not name.token.is_quoted:
            found += result.changed()
        else:
            found += names.expand(name, query)
    return list(dict.fromkeys(found))


def orders_of(index: Index, run_query: RunQuery) -> list[tuple[Target, bool]]:
    """The sort keys of a query, each with whether the largest comes first."""
    if not run_query.sort.strip():
        return []
    names, query = NameResolver(index.fetch), run_query.text("sort")
    return [(names.resolve(key.name, query), key.is_descending) for key in parse_sort_keys(query)]


def names_in(index: Index, run_query: RunQuery) -> list[Target]:
    """The names in the condition and the sort keys of a query, without duplicates."""
    found: list[Target] = []
    if run_query.where.strip():
        names, query = NameResolver(index.fetch), run_query.text("where")
        found = [names.resolve(name, query) for name in _names_of(parse_query(query))]
    return list(dict.fromkeys((*found, *(target for target, _ in orders_of(index, run_query)))))


def locate(folder: Path) -> tuple[Path, str]:
    """The root folder of all runs above ``folder``, and the path of ``folder`` in it.

    So the runs of one project are found in the index of all runs.
    """
    if not (folder / EPOCHAL_DIR).is_dir():
        whole = folder.absolute()
        for above in whole.parents[:_MAX_PARENTS]:
            if (above / EPOCHAL_DIR / INDEX_FILE).is_file():
                root = above if folder.is_absolute() else Path(os.path.relpath(above))
                return root, whole.relative_to(above).as_posix()
    return folder, ""


def is_root(folder: Path) -> bool:
    """Whether a folder is the root of all runs, and not a folder above it."""
    return (folder / EPOCHAL_DIR).is_dir() or any(folder.glob("*/*/*/run.json"))


def decode(text: str | None, number: float | None) -> str | float | bool | None:
    """The config value that the index stores as a text and a number."""
    if text is None or number is None:
        return text
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.lstrip("-").isdecimal() else number


def _conditions(index: Index, run_query: RunQuery, names: NameResolver) -> Iterator[Sql]:
    if run_query.where.strip():
        query = run_query.text("where")
        yield Compiler(names, query).condition(parse_query(query))
    if run_query.search.strip():
        found = json.dumps(index.search(run_query.search))
        yield Sql("runs.id IN (SELECT value FROM json_each(?))", (found,))
    for word in run_query.words:
        shown = f"{index.root}/"
        yield Sql("instr(? || runs.path || ' ' || runs.tag, ?)", (shown, word))
    if run_query.status:
        yield Sql("runs.status = ?", (run_query.status,))
    if run_query.hides_archived and not _names_any(run_query, (ARCHIVED,)):
        yield Sql("NOT runs.archived")
    if run_query.hides_trials and not _names_any(run_query, _TRIAL_NAMES):
        yield Sql(f"NOT {_IS_TRIAL}")
    if run_query.below:
        folder = run_query.below
        yield Sql("runs.path = ? OR instr(runs.path, ?) = 1", (folder, f"{folder}/"))


def _names_any(run_query: RunQuery, names: Sequence[str]) -> bool:
    """Whether its condition contains one of some names."""
    if not run_query.where.strip():
        return False
    return any(name.text in names for name in _names_of(parse_query(run_query.text("where"))))


def _orders(run_query: RunQuery, names: NameResolver) -> Iterator[Sql]:
    if run_query.sort.strip():
        query = run_query.text("sort")
        compiler = Compiler(names, query)
        yield from (compiler.order(key) for key in parse_sort_keys(query))


def _names_of(query: Query) -> list[Name]:
    match query:
        case Compare(name) | Missing(name):
            return [name]
        case Not(inner):
            return _names_of(inner)
        case BoolOp(_, parts):
            return [name for part in parts for name in _names_of(part)]


def _is_redundant(key: str, found: Mapping[str, bool]) -> bool:
    """Whether the elements of a list are shown instead of it, or the list instead of them."""
    has_parts = found[key]
    if has_parts:
        return any(one.startswith(f"{key}.") for one in found)
    parts = key.split(".")
    wholes = (".".join(parts[:i]) for i in range(1, len(parts)) if parts[i].isdecimal())
    return any(found.get(whole) is False for whole in wholes)


_MISSING = "it is missing everywhere"
_SHOWN = 4
_MOST_VALUES = 500


def explain_no_match(index: Index, run_query: RunQuery) -> list[str]:
    """A line for each test that is false for all runs; tests under ``not`` are left out."""
    if not run_query.where.strip():
        return []
    names, query = NameResolver(index.fetch), run_query.text("where")
    compiler, lines = Compiler(names, query), []
    for test in _tests(parse_query(query)):
        made = compiler.condition(test)
        if index.fetch(f"SELECT 1 FROM runs WHERE {made.text} LIMIT 1", made.values):
            continue
        typed = query.text[test.name.token.start : test.values[-1].end]
        typed += ")" * (test.operator in ("in", "not in"))
        target, asked = names.resolve(test.name, query), [value.text for value in test.values]
        actual = _describe_actual(index, target, asked)
        lines.append(f"no run has {typed}{f': {actual}' if actual else ''}")
    return lines


def _tests(query: Query) -> Iterator[Compare]:
    if isinstance(query, Compare):
        yield query
    elif isinstance(query, BoolOp):
        for part in query.parts:
            yield from _tests(part)


def _describe_actual(index: Index, target: Target, asked: Sequence[str]) -> str:
    if isinstance(target, ConfigKey):
        run_query = "SELECT DISTINCT text FROM params WHERE key = ? AND text IS NOT NULL"
        rows = index.fetch(f"{run_query} ORDER BY number, text LIMIT ?", (target.key, _MOST_VALUES))
        return _describe([text for (text,) in rows], asked)
    if isinstance(target, Fact):
        return _describe_fact(index, target, asked)
    extremes = f"min({target.column}), max({target.column})"
    [ends] = index.fetch(f"SELECT {extremes} FROM metrics WHERE name = ?", (target.name,))
    return _describe_range(*map(format_value, ends)) if None not in ends else "it is nan"


def _describe_fact(index: Index, fact: Fact, asked: Sequence[str]) -> str:
    if fact.column == AGE:
        return ""
    if fact.kind == "text":
        chosen = f"SELECT DISTINCT {fact.column} FROM runs WHERE {fact.column} != ''"
        rows = index.fetch(f"{chosen} ORDER BY 1 LIMIT ?", (_MOST_VALUES,))
        return _describe([text for (text,) in rows], asked)
    known = f"NULLIF({fact.column}, '')"
    [ends] = index.fetch(f"SELECT min({known}), max({known}) FROM runs", ())
    if None in ends:
        return _MISSING
    kinds: dict[str, Callable[[Any], str]] = {"length": format_seconds, "time": format_moment}
    return _describe_range(*map(kinds.get(fact.kind, format_value), ends))


def _describe(known: Sequence[str], asked: Sequence[str]) -> str:
    """The most similar value, or the first few."""
    for text in asked:
        meant = suggest(text, known)
        if meant.startswith("did you mean"):
            return meant
    shown = [text.partition("\n")[0] for text in known[:_SHOWN]]
    more = ", ..." * (len(known) > _SHOWN)
    return f"it is {', '.join(shown)}{more}" if known else _MISSING


def _describe_range(first: str, last: str) -> str:
    return f"it is {first}" if first == last else f"it is {first} to {last}"
