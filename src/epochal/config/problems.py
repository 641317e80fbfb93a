"""What is wrong with a config: problems that are collected, and limits that are refused."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NoReturn, final

from epochal.errors import ConfigError, Place, Problem

if TYPE_CHECKING:
    from epochal.config.node import Node

MAX_BYTES = 1_000_000
MAX_NODES = 10_000
MAX_DEPTH = 64
MAX_BASE_DEPTH = 16
MAX_BASES = 256


def join(prefix: str, key: str) -> str:
    """Two dotted paths joined; either may be empty."""
    return f"{prefix}.{key}" if prefix and key else prefix or key


@final
@dataclass
class Findings:
    """The problems found so far, in order, and the keys whose values are unknown."""

    problems: list[Problem] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)
    """Dotted prefixes whose values are unknown; "" is everything."""

    _of_files: set[Problem] = field(default_factory=set)

    def report(self, key: str, what: str, place: Place | None = None, hint: str = "") -> None:
        """Add a problem of the value at ``key``."""
        self.problems.append(Problem(key, what, place, hint))

    def report_file(self, name: str, what: str, place: Place | None = None, hint: str = "") -> None:
        """Add a problem of a whole file, which makes all of its values unknown."""
        problem = Problem(name, what, place, hint)
        self.problems.append(problem)
        self._of_files.add(problem)
        self.broken.add("")

    def copy(self) -> Findings:
        """An independent copy."""
        return Findings([*self.problems], {*self.broken}, {*self._of_files})

    def is_unknown(self, path: str) -> bool:
        """Whether the value at ``path`` is unknown after a part could not be read."""
        parts = path.split(".")
        return any(".".join(parts[:n]) in self.broken for n in range(len(parts) + 1))

    def include(self, other: Findings, prefix: str) -> None:
        """Add the problems of a file that is loaded at ``prefix``."""
        for problem in other.problems:
            if problem in other._of_files:
                self._of_files.add(problem)
                self.problems.append(problem)
            else:
                self.problems.append(replace(problem, key=join(prefix, problem.key)))
        self.broken.update(join(prefix, path) for path in other.broken)


def refuse(name: str, what: str, hint: str = "") -> NoReturn:
    """Raise the error for a source that cannot be read at all."""
    raise ConfigError(Problem(name, what, hint=hint))


def refuse_size(name: str) -> NoReturn:
    """Raise the error for a config of too many values."""
    what = f"more than {MAX_NODES:,} values once aliases and bases are expanded"
    refuse(name, what, "keep data in data files and name them in the config")


def refuse_depth(name: str) -> NoReturn:
    """Raise the error for a config that nests too deep."""
    refuse(name, f"values are nested more than {MAX_DEPTH} levels deep", "flatten the structure")


def require_limits(name: str, count: int, depth: int) -> None:
    """Raise the error for a config of too many values or levels."""
    if count > MAX_NODES:
        refuse_size(name)
    if depth > MAX_DEPTH:
        refuse_depth(name)


def measure(node: Node, *, enough: int = MAX_NODES) -> tuple[int, int]:
    """How many values a tree has and how deep it is; stops after about ``enough`` values."""
    count = depth = 0
    todo = [(node, 1)]
    while todo and count <= enough:
        current, level = todo.pop()
        count += 1
        depth = max(depth, level)
        todo.extend((child, level + 1) for child in current.mapping.values())
        todo.extend((child, level + 1) for child in current.elements)
    return count, depth
