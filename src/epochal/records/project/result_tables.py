"""The named result tables of a project, kept in its database."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from epochal import durable
from epochal.errors import ConfigError, Problem, RecordError, suggest
from epochal.records.layout.coerce import as_mapping
from epochal.records.layout.process import utc_now
from epochal.records.project.project_database import (
    explain_damage,
    get_database_path,
    open_database,
    writing,
)
from epochal.records.project.table_content import TableContent, parse_content

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MAX_TABLES = 200
MAX_NAME = 60
_VERSION = "table_version"
_COUNT_UP = (
    f"INSERT INTO settings (name, value) VALUES ('{_VERSION}', '1') "
    "ON CONFLICT (name) DO UPDATE SET value = CAST(value AS INTEGER) + 1"
)


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class ResultTable:
    """One table."""

    name: str
    version: int
    """Grows with every change; no two changes of any tables have the same."""

    changed: str
    """When, as ISO-8601 in UTC."""

    content: TableContent


@final
class ResultTables:
    """The result tables of a folder of runs, in ``.epochal/project.db``.

    Each call is one transaction, so that any number of processes may use it.

    Args:
        runs_dir: The folder of all runs.
    """

    def __init__(self, runs_dir: Path) -> None:
        self.runs_dir = runs_dir
        self._path = get_database_path(runs_dir)

    def list_tables(self) -> list[ResultTable]:
        """All tables, by name."""
        if not self._path.is_file():
            return []
        with self._open() as connection:
            rows = connection.execute("SELECT * FROM result_tables ORDER BY name").fetchall()
        return [self._read(row) for row in rows]

    def find(self, name: str) -> ResultTable | None:
        """One table; None if there is none of this name."""
        if not self._path.is_file():
            return None
        with self._open() as connection:
            return self._find(connection, name)

    def get(self, name: str) -> ResultTable:
        """One table; RecordError if there is none of this name."""
        with self._open() as connection:
            found = self._find(connection, name)
            if found is None:
                raise _unknown(connection, name)
            return found

    def create(self, name: str, content: TableContent | None = None) -> ResultTable:
        """Create a table; ConfigError if the name is invalid, RecordError if it is taken."""
        name = _check_name(name)
        with self._open() as connection, writing(connection):
            if self._find(connection, name) is not None:
                raise RecordError(f"{name}: a table of this name exists\n  choose another name")
            ((total,),) = connection.execute("SELECT count(*) FROM result_tables").fetchall()
            if total >= MAX_TABLES:
                raise RecordError(f"{name}: there are {total} tables\n  remove one first")
            return self._write(connection, name, content or TableContent())

    def replace(self, name: str, version: int, content: TableContent) -> ResultTable:
        """Replace the content; RecordError if the table is no longer of this version."""
        with self._open() as connection, writing(connection):
            before = self._find(connection, name)
            if before is None:
                raise _unknown(connection, name)
            if before.version != version:
                raise RecordError(
                    f"{name}: the table was changed meanwhile, so nothing was written\n"
                    "  reload it, and make your change again"
                )
            return self._write(connection, name, content)

    def edit(self, name: str, change: Callable[[TableContent], TableContent]) -> ResultTable:
        """Change the newest content, regardless of its version."""
        with self._open() as connection, writing(connection):
            before = self._find(connection, name)
            if before is None:
                raise _unknown(connection, name)
            return self._write(connection, name, change(before.content))

    def remove(self, name: str) -> None:
        """Remove a table; RecordError if there is none of this name."""
        with self._open() as connection, writing(connection):
            done = connection.execute("DELETE FROM result_tables WHERE name = ?", (name,))
            if not done.rowcount:
                raise _unknown(connection, name)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(open_database(self.runs_dir)) as connection:
                yield connection
        except sqlite3.DatabaseError as error:
            raise explain_damage(self._path, error) from error

    def _find(self, connection: sqlite3.Connection, name: str) -> ResultTable | None:
        row = connection.execute("SELECT * FROM result_tables WHERE name = ?", (name,)).fetchone()
        return None if row is None else self._read(row)

    def _read(self, row: sqlite3.Row) -> ResultTable:
        try:
            found = as_mapping(durable.decode_json(row["content"].encode()))
            content = parse_content(found.get("columns"), found.get("rows"))
        except (ValueError, AttributeError, RecursionError, ConfigError) as error:
            what = f"{self._path}: the table {row['name']!r} is damaged"
            raise RecordError(f"{what}\n  remove it: epochal table remove NAME") from error
        return ResultTable(
            name=row["name"], version=row["version"], changed=row["changed"], content=content
        )

    def _write(
        self, connection: sqlite3.Connection, name: str, content: TableContent
    ) -> ResultTable:
        connection.execute(_COUNT_UP)
        ((version,),) = connection.execute(
            "SELECT CAST(value AS INTEGER) FROM settings WHERE name = ?", (_VERSION,)
        ).fetchall()
        table = ResultTable(name=name, version=version, changed=utc_now(), content=content)
        text = durable.encode_json(content.to_json()).decode()
        connection.execute(
            "INSERT OR REPLACE INTO result_tables (name, version, content, changed) "
            "VALUES (?, ?, ?, ?)",
            (name, version, text, table.changed),
        )
        return table


def _unknown(connection: sqlite3.Connection, name: str) -> RecordError:
    known = [row["name"] for row in connection.execute("SELECT name FROM result_tables")]
    hint = suggest(name, known) or "`epochal table new NAME` makes one"
    return RecordError(f"{name}: no such table\n  {hint}")


def _check_name(name: str) -> str:
    text = " ".join(name.split())
    if not text or len(text) > MAX_NAME or not text.isprintable() or {*text} & {"/", "\\"}:
        what = f"{name[:MAX_NAME]!r} cannot be the name of a table"
        hint = f"use at most {MAX_NAME} printable characters, without slashes"
        raise ConfigError(Problem("table", what, hint=hint))
    if text in (".", ".."):
        raise ConfigError(Problem("table", f"{text!r} cannot be the name of a table"))
    return text
