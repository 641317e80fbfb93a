"""Leaves out of a config what Python gives instead, so that no record claims it was used."""

from __future__ import annotations

import logging
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from epochal.config import Node, from_plain
from epochal.engine.interfaces.splits import split_name
from epochal.errors import Place

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from epochal.experiment.config.inputs import ExperimentInputs

logger = logging.getLogger(__name__)
_TITLES = ("tag", "project")


def drop_replaced_sections(
    loaded: ExperimentInputs, *, prepared: Collection[str] = (), runner: str | None = None
) -> ExperimentInputs:
    """What was loaded, less the sections whose parts exist or are made by ``prepare_*``.

    A given runner trains: it is left out where ``runner`` says to do something else. An empty
    ``tag:`` or ``project:`` counts as none.
    """
    parts = dict(loaded.given.parts)
    if runner is not None and runner != "train":
        parts.pop("runner", None)
    gone = {*parts, *prepared} - {"data"}
    root = loaded.config.root
    entries = {name: node for name, node in root.mapping.items() if name not in gone}
    for name in _TITLES:
        if name in entries and entries[name].value is None:
            del entries[name]
    if "data" in parts and "data" in entries:
        entries["data"] = _without_splits(entries["data"], parts["data"])
    available = {*entries, *parts, *prepared}
    if "task" not in available and available >= {"model", "data"}:
        entries["task"] = from_plain("module", place=Place("default"), layer="default")
    return replace(
        loaded,
        given=replace(loaded.given, parts=parts),
        config=replace(loaded.config, root=replace(root, value=MappingProxyType(entries))),
        replaced={name: root.mapping[name].to_plain() for name in gone if name in root.mapping},
    )


def given_sections(loaded: ExperimentInputs, prepared: Collection[str] = ()) -> list[str]:
    """The sections that Python gives, as objects or through ``prepare_*``."""
    lists = {"hooks": loaded.given.hooks, "metrics": loaded.given.metrics}
    return sorted({*loaded.given.parts, *prepared, *(name for name in lists if lists[name])})


def log_replaced_sections(loaded: ExperimentInputs) -> None:
    """Say which sections of the file are not used."""
    for name in loaded.replaced:
        logger.info("%s: given by Python; the section of the config is not used", name)


def _without_splits(data: Node, given: Mapping[str, object]) -> Node:
    splits = {split_name(name) for name in given}
    kept = {name: node for name, node in data.mapping.items() if split_name(name) not in splits}
    return replace(data, value=MappingProxyType(kept))
