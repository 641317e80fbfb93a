"""Resolves the names in queries: columns of the run, metrics, or keys of the config."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal, final

from epochal.errors import suggest
from epochal.records.index.index_database import INTERNAL_COLUMNS, RUN_COLUMNS
from epochal.records.query.syntax import Name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from epochal.records.query.syntax import Function, QueryText

    Fetch = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]

Kind = Literal["text", "number", "time", "length"]

AGE = "age"
"""The time since the start of a run, which is computed and not stored."""

SYNONYMS = {"steps": "step", "time": "seconds", "id": "run", "labels": "label"}
"""Other names of columns, as tables show them."""

_TIMES = ("started", "ended")
_LENGTHS = ("seconds", AGE)
LABEL = "label"
"""The labels of a run; a comparison looks at each of them."""

ARCHIVED = "archived"
FLAGS = ("fast", ARCHIVED)
"""Columns that are 1 or 0, which queries may also write as true and false."""

_SHOWN = 6
_ELEMENT = re.compile(r"\[([0-9]+)\]")
_LOOSE_SCAN = """
WITH RECURSIVE found(one) AS (
  SELECT min({column}) FROM {table}
  UNION ALL
  SELECT (SELECT min({column}) FROM {table} WHERE {column} > one) FROM found WHERE one IS NOT NULL
)
SELECT one FROM found WHERE one IS NOT NULL"""


@final
@dataclass(frozen=True, slots=True)
class Fact:
    """A column of ``runs``."""

    shown: str
    column: str

    @property
    def kind(self) -> Kind:
        """The type of its values."""
        if self.column in _TIMES:
            return "time"
        if self.column in _LENGTHS:
            return "length"
        return "text" if RUN_COLUMNS[self.column].startswith("TEXT") else "number"


@final
@dataclass(frozen=True, slots=True)
class ConfigKey:
    """A key of the config."""

    shown: str
    key: str


@final
@dataclass(frozen=True, slots=True)
class Measure:
    """A metric."""

    shown: str
    name: str
    function: Function

    @property
    def column(self) -> str:
        """Its column of ``metrics``."""
        return {"last": "last", "min": "low", "max": "high", "count": "count"}[self.function]


Target = Fact | ConfigKey | Measure


@final
class NameResolver:
    """Looks names up in the index; ``now`` is for ages and days."""

    def __init__(self, fetch: Fetch, *, now: datetime | None = None) -> None:
        self._fetch = fetch
        self.now = now or datetime.now(UTC)

    def resolve(self, name: Name, query: QueryText) -> Target:
        """The column, key or metric of a name; a ConfigError points at one that no run has."""
        text = name.text
        if name.function != "last" or "/" in text:
            if self._has("metrics", "name", text) or self._is_empty():
                return Measure(name.shown, text, name.function)
            if name.function != "last":
                hint = _suggest(text, self._known("metrics", "name"))
                if self._has("params", "key", text):
                    hint = f"it is a value of the config: write {text}"
                raise query.error(name.token, f"no run has the metric {text!r}", hint=hint)
        column = SYNONYMS.get(text, text)
        if column in FACTS:
            return Fact(text, column)
        key = _ELEMENT.sub(r".\1", text)
        if self._has("params", "key", key) or self._is_empty():
            return ConfigKey(text, key)
        if self._has("metrics", "name", text):
            return Measure(text, text, "last")
        raise query.error(name.token, f"unknown name {text!r}", hint=self._hint(text))

    def expand(self, name: Name, query: QueryText) -> list[Target]:
        """All columns, keys and metrics of a name that may contain ``*``."""
        if name.token.is_quoted or "*" not in name.text:
            return [self.resolve(name, query)]
        found = [Name(one, name.token) for one in self._all() if fnmatchcase(one, name.text)]
        if not found and not self._is_empty():
            hint = _suggest(name.text.replace("*", ""), self._all())
            raise query.error(name.token, f"no name matches {name.text!r}", hint=hint)
        return [self.resolve(one, query) for one in found]

    def _all(self) -> list[str]:
        settings, metrics = self._known("params", "key"), self._known("metrics", "name")
        return [*FACTS, *settings, *metrics]

    def _hint(self, text: str) -> str:
        settings = self._known("params", "key")
        inner = [key for key in settings if key.startswith(f"{text}.")]
        if inner:
            more = ", ..." * (len(inner) > _SHOWN)
            return f"it is a section: name one of {', '.join(inner[:_SHOWN])}{more}"
        known = self._known("metrics", "name") if "/" in text else self._all()
        return _suggest(text, known) or "columns '*' shows every name there is"

    def _has(self, table: str, column: str, value: str) -> bool:
        return bool(self._fetch(f"SELECT 1 FROM {table} WHERE {column} = ? LIMIT 1", (value,)))

    def _known(self, table: str, column: str) -> list[str]:
        rows = self._fetch(_LOOSE_SCAN.format(table=table, column=column), ())
        return [str(row[0]) for row in rows]

    def _is_empty(self) -> bool:
        return not self._fetch("SELECT 1 FROM runs LIMIT 1", ())


def _suggest(text: str, known: Iterable[str]) -> str:
    names = list(known)
    ends = [name for name in names if re.split(r"[./]", name)[-1] == text]
    if ends:
        return f"did you mean {' or '.join(map(repr, ends[:_SHOWN]))}?"
    return suggest(text, names)


FACTS = (*(name for name in RUN_COLUMNS if name not in INTERNAL_COLUMNS), AGE)
"""The names of the columns of a run."""
