"""The result of one check of ``epochal doctor``, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

Level = Literal["ok", "warn", "fail"]


@final
@dataclass(frozen=True, slots=True)
class Diagnostic:
    """The result of one check, and what to do about it."""

    name: str
    level: Level
    what: str
    hint: str = ""
    """What to do; empty if the check passed."""

    def to_json(self) -> dict[str, str]:
        """Plain data for ``--json``."""
        return {"name": self.name, "level": self.level, "what": self.what, "hint": self.hint}
