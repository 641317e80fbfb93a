"""Asks the index about runs: which ones, in which order, and what is known of each."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from epochal.records.home import HOME
from epochal.records.index.schema import HIDDEN, MAX_INTEGER, RUN_COLUMNS
from epochal.records.query.compile import Compiler, Sql
from epochal.records.query.names import AGE, FACTS, Fact, Measure, Names, Setting
from epochal.records.query.parser import parse_names, parse_orders, parse_query
from epochal.records.query.tokens import Written
from epochal.records.query.tree import Among, Compare, Joined, Missing, Not

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from epochal.records.index import Index
    from epochal.records.query.names import Target
    from epochal.records.query.tree import Name, Query

CHANGED = "changed"
"""In a list of columns: every key of the config in which the runs differ."""

_MAX_ABOVE = 3
_FEW = 500
_COLUMNS = ("id", *(name for name in RUN_COLUMNS if name not in HIDDEN))


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """Which runs, in which order."""

    where: str = ""
    sort: str = ""
    """Names, each with ``desc`` behind it if the largest comes first; the oldest if empty."""

    columns: str = ""
    search: str = ""
    """Words that README, tag or config must have."""

    limit: int | None = None
    """Only the first so many; without ``sort`` the newest."""

    words: tuple[str, ...] = ()
    """Parts of the path or tag."""

    status: str = ""
    below: str = ""
    """Only runs below this folder, from the root on."""

    marks: str = ""
    """What stands before the names of the arguments in messages, such as ``--``."""

    def written(self, name: str) -> Written:
        """One of its texts, as it was typed."""
        return Written(getattr(self, name), f"{self.marks}{name}")


@final
class Answer:
    """The runs that were found, in order, and what is known of them."""

    def __init__(self, index: Index, rows: list[dict[str, Any]]) -> None:
        self.root = index.root
        self.rows = rows
        """Every column of ``runs`` and the age, for each run; None for what is not known."""

        self._index = index
        self._ids = [row["id"] for row in rows]

    def path(self, row: Mapping[str, Any]) -> Path:
        """The folder of a run."""
        return self.root / str(row["path"])

    def values(self, target: Target) -> list[Any]:
        """What each run has for a name; None where it has nothing."""
        if target == Fact(target.shown, "path"):
            return [str(self.path(row)) for row in self.rows]
        if isinstance(target, Fact):
            return [row[target.column] for row in self.rows]
        if isinstance(target, Setting):
            question = "SELECT run_id, text, number FROM params WHERE key = ?"
            found = {id_: decode(*value) for id_, *value in self._fetch(question, target.key)}
        else:
            question = f"SELECT run_id, {target.column} FROM metrics WHERE name = ?"
            nothing = float("nan")  # which SQLite keeps as NULL
            found = {
                id_: nothing if value is None else value
                for id_, value in self._fetch(question, target.name)
            }
        return [found.get(id_) for id_ in self._ids]

    def changed(self) -> list[Setting]:
        """The keys of the config in which the runs differ, without those that are facts.

        What comes with a component that only some have counts if anybody set it. Keys with the
        most values come first.
        """
        owner = "run_id" if len(self._ids) <= _FEW else "+run_id"  # which goes through all keys
        rows = self._index.fetch(
            "SELECT key, max(text LIKE '[%{%') FROM params "
            f"WHERE {owner} IN (SELECT value FROM json_each(?)) GROUP BY key "
            "HAVING count(DISTINCT IFNULL(text, x'00')) > 1 "
            "OR (count(*) < ? AND NOT min(is_default)) "
            "ORDER BY count(DISTINCT text) DESC, key",
            (json.dumps(self._ids), len(self._ids)),
        )
        found = {key: bool(has_parts) for key, has_parts in rows if key not in FACTS}
        return [Setting(key, key) for key in found if not _is_told_elsewhere(key, found)]

    def metrics(self) -> list[Measure]:
        """The metrics that any of the runs has."""
        rows = self._index.fetch(
            "SELECT DISTINCT name FROM metrics WHERE run_id IN (SELECT value FROM json_each(?)) "
            "ORDER BY name",
            (json.dumps(self._ids),),
        )
        return [Measure(name, name, "last") for (name,) in rows]

    def _fetch(self, question: str, name: str) -> list[tuple[Any, ...]]:
        if len(self._ids) > _FEW:
            return self._index.fetch(question, (name,))
        few = f"{question} AND run_id IN (SELECT value FROM json_each(?))"
        return self._index.fetch(few, (name, json.dumps(self._ids)))


def ask(index: Index, question: Question, *, now: datetime | None = None) -> Answer:
    """The runs that a question is about.

    Raises:
        ConfigError: A part of the question cannot be understood; points at the place.
    """
    names = Names(index.fetch, now=now)
    conditions = list(_conditions(index, question, names))
    orders = list(_orders(question, names))
    is_newest = not orders
    if is_newest:  # the last ones by time: backwards, and turned round below
        orders = [Sql("runs.started DESC, runs.run DESC")]
    where = " AND ".join(f"({one.text})" for one in conditions) or "1"
    order = ", ".join(one.text for one in orders)
    values = [value for one in (*conditions, *orders) for value in one.values]
    limit = -1 if question.limit is None else min(max(question.limit, 0), MAX_INTEGER)
    columns = ", ".join(f"runs.{name}" for name in _COLUMNS)
    age = "(julianday(?) - julianday(runs.started)) * 86400"
    found = index.fetch(
        f"SELECT {columns}, {age} FROM runs WHERE {where} ORDER BY {order}, runs.started, runs.id "
        "LIMIT ?",
        (f"{names.now.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}", *values, limit),
    )
    rows = [
        {name: None if value == "" else value for name, value in zip(_NAMES, row, strict=True)}
        for row in found
    ]
    for row in rows:
        if isinstance(row["seed"], str):  # an integer that SQLite does not take
            row["seed"] = int(row["seed"])
    return Answer(index, rows[::-1] if is_newest else rows)


_NAMES = (*_COLUMNS, AGE)


def columns_of(index: Index, written: Written, answer: Answer) -> list[Target]:
    """What a list of columns stands for; ``*`` and ``changed`` may stand for several."""
    if not written.text.strip():
        return []
    names = Names(index.fetch)
    found: list[Target] = []
    for name in parse_names(written):
        if name.text == CHANGED and name.function == "last" and name.token.kind == "word":
            found += answer.changed()
        else:
            found += names.expand(name, written)
    return list(dict.fromkeys(found))


def orders_of(index: Index, question: Question) -> list[tuple[Target, bool]]:
    """What a question sorts by, each with whether the largest comes first."""
    if not question.sort.strip():
        return []
    names, written = Names(index.fetch), question.written("sort")
    return [(names.resolve(one.name, written), one.is_descending) for one in parse_orders(written)]


def names_in(index: Index, question: Question) -> list[Target]:
    """What the condition and the order of a question are about, each once."""
    found: list[Target] = []
    if question.where.strip():
        names, written = Names(index.fetch), question.written("where")
        found = [names.resolve(name, written) for name in _mentioned(parse_query(written))]
    return list(dict.fromkeys((*found, *(target for target, _ in orders_of(index, question)))))


def locate(folder: Path) -> tuple[Path, str]:
    """The folder of all runs that ``folder`` is a part of, and its path from there on.

    So the runs of one project are found in the index of all of them.
    """
    if not (folder / HOME).is_dir():
        whole = folder.absolute()
        for above in whole.parents[:_MAX_ABOVE]:
            if (above / HOME / "index.db").is_file():
                root = above if folder.is_absolute() else Path(os.path.relpath(above))
                return root, whole.relative_to(above).as_posix()
    return folder, ""


def is_root(folder: Path) -> bool:
    """Whether a folder is that of all runs, and not one that has such a folder somewhere in it."""
    return (folder / HOME).is_dir() or any(folder.glob("*/*/*/run.json"))


def decode(text: str | None, number: float | None) -> str | float | bool | None:
    """The value of a config that the index keeps as a text and a number."""
    if text is None or number is None:
        return text
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.lstrip("-").isdecimal() else number


def _conditions(index: Index, question: Question, names: Names) -> Iterator[Sql]:
    if question.where.strip():
        written = question.written("where")
        yield Compiler(names, written).condition(parse_query(written))
    if question.search.strip():
        found = json.dumps(index.search(question.search))
        yield Sql("runs.id IN (SELECT value FROM json_each(?))", (found,))
    for word in question.words:
        shown = f"{index.root}/"
        yield Sql("instr(? || runs.path || ' ' || runs.tag, ?)", (shown, word))
    if question.status:
        yield Sql("runs.status = ?", (question.status,))
    if question.below:
        folder = question.below
        yield Sql("runs.path = ? OR instr(runs.path, ?) = 1", (folder, f"{folder}/"))


def _orders(question: Question, names: Names) -> Iterator[Sql]:
    if question.sort.strip():
        written = question.written("sort")
        compiler = Compiler(names, written)
        yield from (compiler.order(one) for one in parse_orders(written))


def _mentioned(query: Query) -> list[Name]:
    match query:
        case Compare(name) | Among(name) | Missing(name):
            return [name]
        case Not(inner):
            return _mentioned(inner)
        case Joined(_, parts):
            return [name for part in parts for name in _mentioned(part)]


def _is_told_elsewhere(key: str, found: Mapping[str, bool]) -> bool:
    """Whether a list is told by its elements, or an element by its list, whichever is shorter."""
    has_parts = found[key]
    if has_parts:
        return any(one.startswith(f"{key}.") for one in found)
    parts = key.split(".")
    wholes = (".".join(parts[:i]) for i in range(1, len(parts)) if parts[i].isdecimal())
    return any(found.get(whole) is False for whole in wholes)
