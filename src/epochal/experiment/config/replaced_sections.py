"""Drops the sections of a config that Python gives instead, so that no record claims them."""

from __future__ import annotations

import logging
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from epochal.config import from_plain
from epochal.engine.interfaces.splits import split_name
from epochal.errors import Place

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from epochal.config import Config, Node
    from epochal.experiment.config.inputs import ExperimentInputs

logger = logging.getLogger(__name__)
_TITLES = ("tag", "project")


def drop_replaced_sections(
    inputs: ExperimentInputs, *, runner: str | None = None
) -> ExperimentInputs:
    """The inputs without the sections whose parts are given or made by ``prepare_*``.

    A given runner trains: it is left out where ``runner`` asks for something else.
    """
    parts = dict(inputs.given.parts)
    if runner is not None and runner != "train":
        parts.pop("runner", None)
    gone = {*parts, *inputs.given.prepared} - {"data"}
    root = inputs.config.root
    return replace(
        inputs,
        given=replace(inputs.given, parts=parts),
        config=drop_sections(inputs.config, gone, parts.get("data")),
        replaced={name: root.mapping[name].to_plain() for name in gone if name in root.mapping},
    )


def drop_sections(
    config: Config, gone: Collection[str] = (), loaders: Mapping[str, object] | None = None
) -> Config:
    """The config without the sections ``gone`` and the splits that have ``loaders``.

    An empty ``tag:`` or ``project:`` counts as missing, and a model with data needs no task.
    """
    root = config.root
    entries = {name: node for name, node in root.mapping.items() if name not in gone}
    for name in _TITLES:
        if name in entries and entries[name].value is None:
            del entries[name]
    if loaders is not None and "data" in entries:
        entries["data"] = _without_splits(entries["data"], loaders)
    available = {*entries, *gone, *(() if loaders is None else ("data",))}
    if "task" not in available and available >= {"model", "data"}:
        entries["task"] = from_plain("module", place=Place("default"), layer="default")
    return replace(config, root=replace(root, value=MappingProxyType(entries)))


def log_replaced_sections(inputs: ExperimentInputs) -> None:
    """Log which sections of the file are not used."""
    for name in inputs.replaced:
        logger.info("%s: given by Python; the section of the config is not used", name)


def _without_splits(data: Node, given: Mapping[str, object]) -> Node:
    splits = {split_name(name) for name in given}
    kept = {name: node for name, node in data.mapping.items() if split_name(name) not in splits}
    return replace(data, value=MappingProxyType(kept))
