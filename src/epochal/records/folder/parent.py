"""The run that another run belongs to: which one, and as what."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, final, get_args

if TYPE_CHECKING:
    from collections.abc import Mapping

ParentKind = Literal["retried", "trial", "fold", "weights", "test", "predict"]

PARENT_VARIABLE = "EPOCHAL_PARENT"
"""The environment variable by which whoever starts a process tells it: ``kind:run``."""


@final
@dataclass(frozen=True, slots=True)
class Parent:
    """What a run is of another one.

    A run that is resumed goes on in its own folder: its attempts tell of that.
    """

    run: str
    """The id of the other run, which is the name of its folder."""

    kind: ParentKind
    """``retried``: it ended before there was anything to go on from, and this one starts anew;
    ``trial`` of a sweep, ``fold`` of a cross validation; this one began with its ``weights``, or is
    a ``test`` of them, or a ``predict``."""

    def to_json(self) -> dict[str, str]:
        """The same as ``run.json`` keeps it."""
        return asdict(self)

    def to_environment(self) -> dict[str, str]:
        """What to set for a process so that its run knows."""
        return {PARENT_VARIABLE: f"{self.kind}:{self.run}"}


def pop_parent_variable() -> Parent | None:
    """The parent that whoever started this process told; told once, not to further processes."""
    kind, _, run = os.environ.pop(PARENT_VARIABLE, "").partition(":")
    return _parse_parent(run, kind)


def read_parent(run: Mapping[str, Any]) -> Parent | None:
    """The parent that a ``run.json`` names, if any."""
    entry = run.get("parent")
    return _parse_parent(entry.get("run"), entry.get("kind")) if isinstance(entry, dict) else None


def _parse_parent(run: object, kind: object) -> Parent | None:
    known = next((one for one in get_args(ParentKind) if one == kind), None)
    return Parent(run, known) if isinstance(run, str) and run and known else None
