"""What is not as it was when a run was recorded: its config, its code, its data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, final

from typing_extensions import override

from epochal.errors import ConfigError, Problem
from epochal.experiment.choices import to_override


@final
class ChangedError(ConfigError):
    """A run is not to go on, since it would be another one."""


_FREE = (
    "train.for",
    "train.max_time",
    "train.until",
    "log",
    "log.*",
    "record",
    "record.*",
    "checkpoint",
    "checkpoint.*",
    "notify",
    "engine.empty_cache_every",
    "data.*workers",
    "data.*prefetch*",
    "data.*pin_memory",
    "init_from",
    "init_from.*",
    "project",
    "tag",
    "desc",
    "env",
)
"""Keys that may change without making another run of it; the rest decides what is computed."""

_WATCHERS = ("banner", "console", "recording", "timereport", "finalweights", "profiler")
_UNRECORDED = ("init_from", "record")
_ABSENT = "(nothing)"
_MAX_LISTED = 12
Value = Any  # values of a config have no narrower type


@final
@dataclass(frozen=True, slots=True)
class Change:
    """One thing that differs."""

    key: str
    before: Value
    after: Value
    is_free: bool = False
    """Whether it may change in the middle of a run."""

    @override
    def __str__(self) -> str:
        return f"{self.key}: {_shown(self.before)} -> {_shown(self.after)}"


def _shown(value: Value) -> str:
    text = value if value == _ABSENT else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def config_changes(before: Mapping[str, Value], after: Mapping[str, Value]) -> list[Change]:
    """The keys of two expanded configs whose values differ."""
    return list(_compare(before, after, ""))


def _compare(
    before: Mapping[str, Value], after: Mapping[str, Value], prefix: str
) -> Iterator[Change]:
    for name in dict.fromkeys((*before, *after)):
        key = f"{prefix}{name}"
        old, new = before.get(name, _ABSENT), after.get(name, _ABSENT)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from _compare(old, new, f"{key}.")
        elif not _is_same(old, new):
            is_free = any(fnmatchcase(key, pattern) for pattern in _FREE)
            if key == "hooks":
                is_free = _is_same(_acting(old), _acting(new))
            yield Change(key, old, new, is_free)


def _is_same(old: Value, new: Value) -> bool:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return old.keys() == new.keys() and all(_is_same(old[key], new[key]) for key in old)
    if isinstance(old, list | tuple) and isinstance(new, list | tuple):
        return len(old) == len(new) and all(map(_is_same, old, new))
    if isinstance(old, float) and isinstance(new, float):
        return old == new or (old != old and new != new)
    return isinstance(old, bool) == isinstance(new, bool) and bool(old == new)


def _acting(hooks: Value) -> list[Value]:
    """The hooks that may change what is computed, and not only what is seen of it."""
    entries = hooks if isinstance(hooks, list | tuple) else ()
    return [entry for entry in entries if _type_of(entry) not in _WATCHERS]


def _type_of(entry: Value) -> str:
    named = entry.get("type") if isinstance(entry, Mapping) else entry
    return str(named).rpartition(".")[2].lower().replace("_", "")


def to_changes(changes: Sequence[Change]) -> tuple[str, ...]:
    """The same as overrides, which make the new config of the old one."""
    return tuple(
        to_override(change.key, "$delete" if change.after == _ABSENT else change.after)
        for change in changes
        if change.key.partition(".")[0] not in _UNRECORDED
    )


def refuse_changes(where: object, found: Sequence[Change]) -> None:
    """Refuse to go on with what is another run.

    Raises:
        ChangedError: Something differs that must not.
    """
    wrong = [change for change in found if not change.is_free]
    if not wrong:
        return
    lines = [str(change) for change in wrong[:_MAX_LISTED]]
    if len(wrong) > _MAX_LISTED:
        lines.append(f"and {len(wrong) - _MAX_LISTED} more")
    what = "cannot go on as the same run, since this has changed:\n    " + "\n    ".join(lines)
    hint = "make it as it was, or go on all the same with --allow-changed"
    raise ChangedError(Problem(str(where), what, hint=hint))
