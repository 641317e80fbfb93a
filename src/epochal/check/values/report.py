"""The result of a check: every mistake, and the config with all its defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from typing_extensions import override

from epochal.config.node import NOWHERE
from epochal.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from epochal.check.signatures.literals import Opaque, Plain
    from epochal.config.node import Node
    from epochal.errors import Place
    from epochal.registry import Project


@final
@dataclass(frozen=True, slots=True)
class Default:
    """A value that the config does not set."""

    key: str
    value: Plain | Opaque
    """``Opaque`` if it is known only after running the owner's code; then it is not filled in."""

    owner: str
    """The component or section whose default it is."""


@final
@dataclass(frozen=True, slots=True)
class CheckReport:
    """The outcome of checking one config."""

    problems: tuple[Problem, ...]
    """Every mistake, in the order of files and lines."""

    expanded: Node
    """The config with every known default filled in; the parts are built from it."""

    defaults: tuple[Default, ...]
    project: Project

    @property
    def ok(self) -> bool:
        """Whether there are no mistakes."""
        return not self.problems

    @override
    def __str__(self) -> str:
        if self.problems:
            return "\n\n".join(str(problem) for problem in self.problems)
        count = len(self.defaults)
        return f"no mistakes, {count} default{'' if count == 1 else 's'}"


@final
@dataclass(slots=True)
class Mistakes:
    """Collects mistakes, and knows which ones loading the config reported."""

    broken: frozenset[str] = frozenset()
    """Dotted prefixes whose included file could not be read."""

    reported: frozenset[str] = frozenset()
    """Keys with a mistake that was reported earlier."""

    problems: list[Problem] = field(default_factory=list)

    def is_broken(self, path: str) -> bool:
        """Whether a file that could not be read may contain what is missing at ``path``."""
        return any(not b or path == b or path.startswith(f"{b}.") for b in self.broken)

    def is_known_bad(self, path: str) -> bool:
        """Whether the value at ``path`` itself was reported earlier."""
        return path in self.reported or path in self.broken

    def has_any(self, path: str) -> bool:
        """Whether anything at or below ``path`` has been reported."""
        keys = (*self.reported, *(problem.key for problem in self.problems))
        return any(key == path or key.startswith(f"{path}.") for key in keys)

    def report(self, key: str, what: str, place: Place | None, hint: str = "") -> None:
        """Add one mistake."""
        self.problems.append(Problem(key, what, None if place == NOWHERE else place, hint))


def sort_problems(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """The problems without duplicates, sorted by file, line and column."""
    distinct = dict.fromkeys(problems)
    return tuple(sorted(distinct, key=_position))


def _position(problem: Problem) -> tuple[str, int, int]:
    place = problem.place
    return ("", 0, 0) if place is None else (place.name, place.line, place.column)
