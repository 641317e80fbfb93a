"""Reads the experiment class of a run that only its script can build again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Mapping


@final
@dataclass(frozen=True, slots=True)
class UnnamedClass:
    """The class of an experiment that no config can name, so only its script can use it again."""

    name: str
    script: str
    """Its file; empty if it has none."""

    steps: tuple[str, ...]
    """The methods of ``Experiment`` that it overrides."""

    why: str

    @override
    def __str__(self) -> str:
        return f"{self.name}, which overrides {', '.join(self.steps) or 'nothing'}"


def find_unnamed_class(run: Mapping[str, Any]) -> UnnamedClass | None:
    """The class of the experiment in ``run.json``, if the run's config does not name it."""
    facts = run.get("experiment")
    if not isinstance(facts, dict) or not facts.get("obstacle"):
        return None
    steps = facts.get("steps")
    return UnnamedClass(
        str(facts.get("class")),
        str(facts.get("file") or ""),
        tuple(map(str, steps)) if isinstance(steps, list) else (),
        str(facts["obstacle"]),
    )
