"""Names of splits where a config lists them: every one must exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.check.sections import split_names
from epochal.errors import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.check.walk import Walk
    from epochal.config.node import Node
    from epochal.errors import Place


def check_splits(walk: Walk, root: Node) -> None:
    """Report unknown splits in ``on:`` of hooks and metrics and in ``train.eval_every``."""
    known = split_names(walk.registry.library)
    for path, name, place in _listed(root):
        if isinstance(name, str) and name not in known:
            close = nearest(name, known)
            hint = f"did you mean {close!r}?" if close else "known: train, val, test, predict"
            walk.mistakes.report(path, f"unknown split {name!r}", place, hint)


def _listed(root: Node) -> Iterator[tuple[str, object, Place]]:
    for section in ("hooks", "metrics"):
        listed = root.mapping.get(section)
        for index, entry in enumerate(listed.elements if listed is not None else ()):
            names = entry.mapping.get("on")
            for position, child in enumerate(names.elements if names is not None else ()):
                yield f"{section}.{index}.on.{position}", child.value, child.place
    periods = root.find("train.eval_every")
    for name, child in periods.mapping.items() if periods is not None else ():
        yield f"train.eval_every.{name}", name, child.key_place
