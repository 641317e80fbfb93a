"""Which parts the class that ``experiment`` names builds itself, read from its source."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from epochal.check.signatures.classes import binds_name, find_mro
from epochal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from epochal.check.values.checker import ConfigChecker
    from epochal.config.node import Node

KIND = "experiment"
"""What messages call such a class."""

_BASE = "epochal.experiment.experiment.Experiment"
_SECTIONS_BY_STEP: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "prepare_task": ("task",),
        "build_task": ("task",),
        "prepare_model": ("model",),
        "build_model": ("model",),
        "build_metrics": ("metrics",),
        "build_optimizer": ("optim", "schedule"),
        "build_hooks": ("hooks",),
    }
)


def find_built_sections(steps: Collection[str]) -> set[str]:
    """The sections whose parts the overridden build steps make."""
    return {name for step in steps for name in _SECTIONS_BY_STEP.get(step, ())}


def is_read_by_steps(name: str, node: Node, steps: Collection[str]) -> bool:
    """Whether a section contains values for the user's own build step and names no component."""
    if f"prepare_{name}" in steps:
        return True
    is_spec = not node.is_mapping or "type" in node.mapping
    return name in ("task", "model") and f"build_{name}" in steps and not is_spec


def read_overridden_steps(checker: ConfigChecker, node: Node | None) -> frozenset[str]:
    """The build steps that the named class overrides; mistakes go into ``checker``.

    All of them if a part of its source cannot be read.
    """
    name = None if node is None else node.value
    if node is None or not isinstance(name, str) or checker.is_known_bad(KIND):
        return frozenset()
    if "." not in name:
        checker.report(
            KIND, f"{name!r} is not a dotted path", node.place, "write package.module.Class"
        )
        return frozenset(_SECTIONS_BY_STEP)
    try:
        factory = checker.registry.find(KIND, name, node.place, key=KIND)
    except ConfigError as error:
        checker.problems.extend(error.problems)
        return frozenset(_SECTIONS_BY_STEP)
    definition = checker.finder.find_definition(factory.dotted)
    order = (None,) if definition is None else find_mro(definition, checker.finder)
    own = [item for item in order if item is not None and item.dotted != _BASE]
    if len(own) == len(order):
        what = f"{factory.dotted} is not a subclass of epochal.Experiment"
        checker.report(KIND, what, node.place, f"write class {factory.qualname}(ep.Experiment)")
    if None in order:
        return frozenset(_SECTIONS_BY_STEP)
    return frozenset(
        step for step in _SECTIONS_BY_STEP if any(binds_name(item.node, step) for item in own)
    )
