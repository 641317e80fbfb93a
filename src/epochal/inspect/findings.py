"""What an examination finds: one line each, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

Level = Literal["ok", "warn", "fail"]


@final
@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    name: str
    level: Level
    what: str
    hint: str = ""
    """What to do, unless all is well."""

    def to_json(self) -> dict[str, str]:
        """The same for programs."""
        return {"name": self.name, "level": self.level, "what": self.what, "hint": self.hint}
