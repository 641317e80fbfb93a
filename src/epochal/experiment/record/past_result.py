"""Reads the result of a run from its record."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from epochal.engine import RunResult

if TYPE_CHECKING:
    from epochal.records import RunRecord


def read_result(record: RunRecord) -> RunResult:
    """The result of a run that has ended, as its own process had it."""
    known = {one.name for one in fields(RunResult)}
    values = {name: value for name, value in record.result.items() if name in known}
    return RunResult(**values | {"dir": record.path, "config": record.expanded})
