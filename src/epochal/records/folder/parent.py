"""The parent of a run: the run that it retries, tests, or takes weights from."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, final, get_args

if TYPE_CHECKING:
    from collections.abc import Mapping

ParentKind = Literal["retried", "trial", "fold", "weights", "test", "predict"]

PARENT_VARIABLE = "EPOCHAL_PARENT"
"""The environment variable that gives the parent to a new process: ``kind:run``."""


@final
@dataclass(frozen=True, slots=True)
class Parent:
    """The relation of a run to another one.

    A resumed run continues in its own folder and has attempts instead.
    """

    run: str
    """The id of the other run."""

    kind: ParentKind
    """``retried``: it ended without a checkpoint, and this run starts again; ``trial`` of a sweep;
    ``fold`` of a cross validation; this run started from its ``weights``, or is a ``test`` or a
    ``predict`` of them."""

    def to_json(self) -> dict[str, str]:
        """The entry in ``run.json``."""
        return asdict(self)

    def to_environment(self) -> dict[str, str]:
        """The environment variable for a child process."""
        return {PARENT_VARIABLE: f"{self.kind}:{self.run}"}


def pop_parent_variable() -> Parent | None:
    """The parent from the environment, which child processes do not inherit."""
    kind, _, run = os.environ.pop(PARENT_VARIABLE, "").partition(":")
    return _parse_parent(run, kind)


def read_parent(run: Mapping[str, Any]) -> Parent | None:
    """The parent in ``run.json``, if any."""
    entry = run.get("parent")
    return _parse_parent(entry.get("run"), entry.get("kind")) if isinstance(entry, dict) else None


def _parse_parent(run: object, kind: object) -> Parent | None:
    known = next((one for one in get_args(ParentKind) if one == kind), None)
    return Parent(run, known) if isinstance(run, str) and run and known else None
