"""Labels of a run, and whether it is archived; users may change both at any time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

from epochal import durable
from epochal.errors import ConfigError, Problem, RecordError
from epochal.records.folder import redacted
from epochal.records.layout.os_errors import describe_os_error

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

LABELS_FILE = "labels.json"
MAX_LABELS = 32
MAX_LENGTH = 60
SEPARATOR = ", "
"""Between labels in texts; no label has a comma."""


@final
@dataclass(frozen=True, slots=True)
class RunLabels:
    """The labels of a run, and whether it is archived."""

    labels: tuple[str, ...] = ()
    """Sorted, each once."""

    is_archived: bool = False
    """Whether lists hide the run, unless they show archived runs."""

    @property
    def text(self) -> str:
        """The labels in one line."""
        return SEPARATOR.join(self.labels)


def read_labels(run_dir: Path) -> RunLabels:
    """The labels of a run; none if the file is missing or damaged."""
    found = durable.find_object(run_dir / LABELS_FILE)
    labels = found.get("labels")
    texts = [one for one in labels if isinstance(one, str)] if isinstance(labels, list) else []
    valid = sorted({one for one in texts if not _find_mistake(one)})[:MAX_LABELS]
    return RunLabels(tuple(valid), found.get("archived") is True)


def split_labels(text: str | None) -> list[str]:
    """The labels in a text of the index, or as a user typed them."""
    return [one.strip() for one in (text or "").split(SEPARATOR.strip()) if one.strip()]


def check_labels(labels: Iterable[str], key: str = "label") -> list[str]:
    """The labels without surrounding spaces; ConfigError for an invalid label."""
    found = [one.strip() for one in labels]
    for one in found:
        if mistake := _find_mistake(one):
            hint = f"use at most {MAX_LENGTH} printable characters, without commas"
            raise ConfigError(Problem(key, f"{one[:MAX_LENGTH]!r} {mistake}", hint=hint))
    return list(dict.fromkeys(found))


def _find_mistake(label: str) -> str:
    if not label or label != label.strip():
        return "is not a label"
    if len(label) > MAX_LENGTH:
        return "is too long for a label"
    is_plain = label.isprintable() and "," not in label
    return "" if is_plain else "has characters that labels cannot have"


def change_labels(
    run_dir: Path,
    *,
    add: Iterable[str] = (),
    remove: Iterable[str] = (),
    is_archived: bool | None = None,
) -> RunLabels:
    """Add and remove labels of a run, archive or unarchive it; returns the new state.

    Raises:
        ConfigError: A label is invalid, or there are too many.
        RecordError: The folder cannot be written.
    """
    added, removed = check_labels(add), {one.strip() for one in remove}
    try:
        with durable.locked(run_dir):  # two users may change them at the same time
            return _change(run_dir, added, removed, is_archived)
    except OSError as error:
        what = f"{run_dir}: the labels cannot be written: {describe_os_error(error)}"
        raise RecordError(f"{what}\n  ask for write permission") from error


def _change(
    run_dir: Path, added: list[str], removed: set[str], is_archived: bool | None
) -> RunLabels:
    before = read_labels(run_dir)
    labels = tuple(sorted({*before.labels, *added} - removed))
    if len(labels) > MAX_LABELS:
        what = f"{run_dir.name} would have {len(labels)} labels"
        hint = f"a run has at most {MAX_LABELS}: remove some"
        raise ConfigError(Problem("label", what, hint=hint))
    after = replace(before, labels=labels)
    if is_archived is not None:
        after = replace(after, is_archived=is_archived)
    if after != before:
        content = {"labels": list(labels), "archived": after.is_archived}
        redacted.write_json(run_dir / LABELS_FILE, content)
    return after
