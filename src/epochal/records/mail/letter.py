"""One mail: what happened to a run, in a line and in full."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, final, get_args

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal[
    "finished", "failed", "stalled", "diverged", "out_of_disk", "lost", "gave_up", "sweep_done"
]
KINDS: tuple[Kind, ...] = get_args(Kind)

LEVELS: Mapping[str, str] = MappingProxyType(
    {"finished": "info", "sweep_done": "info", "stalled": "warning"}
)
"""How bad each kind is; what is not listed is an ``error``."""

_ID_LENGTH = 10


@final
@dataclass(frozen=True, kw_only=True)
class Mail:
    """What somebody who was away should know."""

    id: str
    """The same for the same thing, whoever tells of it."""

    kind: Kind
    subject: str
    """One line: outcome, run, duration, best value, and why."""

    text: str
    time: str
    """ISO-8601 in UTC."""

    run: str = ""
    """The run's folder, from the folder of all runs; empty if it has none."""

    sender: Mapping[str, Any] = field(default_factory=dict)
    """Whose mail it is: tag, project, runner, host, when it started, its folder."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    """What the subject says, for programs: seconds, step, epoch, monitor, best, metrics, error."""

    is_read: bool = False
    is_archived: bool = False

    @property
    def level(self) -> str:
        """``info``, ``warning`` or ``error``."""
        return LEVELS.get(self.kind, "error")

    def to_json(self) -> dict[str, Any]:
        """The same as plain data, as the mailbox and a webhook have it."""
        names = ("id", "kind", "level", "subject", "text", "time", "run")
        plain: dict[str, Any] = {name: getattr(self, name) for name in names}
        return plain | {"sender": dict(self.sender), "facts": dict(self.facts)}


def read_mail(value: Mapping[str, Any]) -> Mail | None:
    """A mail from plain data; None if it cannot be one."""
    texts = {name: value.get(name) for name in ("id", "kind", "subject", "text", "time", "run")}
    if not all(isinstance(text, str) for text in texts.values()) or texts["kind"] not in KINDS:
        return None
    if not str(texts["id"]).isalnum():  # it is the name of a file, and must not lead elsewhere
        return None
    maps = {
        name: found if isinstance(found := value.get(name), dict) else {}
        for name in ("sender", "facts")
    }
    known: dict[str, Any] = {**texts, **maps}
    return Mail(
        **known, is_read=value.get("read") is True, is_archived=value.get("archived") is True
    )


def identify(*words: object) -> str:
    """The id of a mail about a thing that these words tell from every other."""
    text = "\0".join(map(str, words))
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:_ID_LENGTH]


def now() -> str:
    """This moment, as mails have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
