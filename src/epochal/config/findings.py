"""What reading a config found wrong, collected instead of raised."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import final

from epochal.errors import Place, Problem


def join(prefix: str, key: str) -> str:
    """One dotted path out of two, of which either may be empty."""
    return f"{prefix}.{key}" if prefix and key else prefix or key


@final
@dataclass
class Findings:
    """Problems in the order they were met, and the keys whose values are unknown."""

    problems: list[Problem] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)
    """Dotted prefixes below which nothing certain can be said; "" is everything."""

    _of_files: set[Problem] = field(default_factory=set)

    def report(self, key: str, what: str, place: Place | None = None, hint: str = "") -> None:
        """Note a problem of the value at ``key``."""
        self.problems.append(Problem(key, what, place, hint))

    def report_file(self, name: str, what: str, place: Place | None = None, hint: str = "") -> None:
        """Note a problem of a whole file, which leaves everything in it unknown."""
        problem = Problem(name, what, place, hint)
        self.problems.append(problem)
        self._of_files.add(problem)
        self.broken.add("")

    def copy(self) -> Findings:
        """The same findings, for more to be added without changing these."""
        return Findings([*self.problems], {*self.broken}, {*self._of_files})

    def is_unknown(self, path: str) -> bool:
        """Whether something that could not be read may have set the value at ``path``."""
        parts = path.split(".")
        return any(".".join(parts[:n]) in self.broken for n in range(len(parts) + 1))

    def include(self, other: Findings, prefix: str) -> None:
        """Take over what was found in a file that is loaded at ``prefix``."""
        for problem in other.problems:
            if problem in other._of_files:
                self._of_files.add(problem)
                self.problems.append(problem)
            else:
                self.problems.append(replace(problem, key=join(prefix, problem.key)))
        self.broken.update(join(prefix, path) for path in other.broken)
