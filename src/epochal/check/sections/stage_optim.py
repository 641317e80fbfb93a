"""Checks the changes that a stage makes to ``optim``, with one optimizer or several."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, final

from epochal.check.sections.optim import check_optimizer
from epochal.check.sections.section_shapes import (
    SHARED_KEYS,
    expand_members,
    has_members,
    member_signature,
)
from epochal.check.sections.sections import SECTIONS, section_signature
from epochal.check.signatures.literals import Opaque
from epochal.check.signatures.parameters import Parameter, Signature
from epochal.check.signatures.signature import read_signature
from epochal.check.values.checker import ConfigChecker, replace_entries, suggest_known
from epochal.check.values.report import Mistakes
from epochal.config.scalar import show
from epochal.errors import ConfigError, Place

if TYPE_CHECKING:
    from collections.abc import Collection

    from epochal.config.node import Node
    from epochal.registry import Factory, Registry

RATE_KEYS = ("type", "lr", "groups", "layer_decay", "no_decay")
"""Keys that change the parameter groups or their learning rates."""

_STATE = Parameter("state", "Literal['keep', 'reset']", Opaque("as fits"))


@final
class StageOptimChecker:
    """Checks the key ``optim`` of stages in order; remembers the optimizers that they chose.

    Args:
        checker: Collects the mistakes.
        section: The expanded section ``optim`` of the run; None if there is none.
    """

    def __init__(self, checker: ConfigChecker, section: Node | None) -> None:
        self._checker = checker
        members = section is not None and has_members(SECTIONS["optim"], section)
        entries = section.mapping if section is not None and members else {}
        self.names = [name for name, child in entries.items() if child.is_mapping]
        """The names of several optimizers; empty for one optimizer."""

        paths = [f"optim.{name}" for name in self.names] if members else ["optim"]
        self._factories: dict[str, Factory | None] = {
            path: checker.factories.get(path) for path in paths
        }

    def expand(self, path: str, node: Node) -> Node:
        """The changes of one stage, checked and expanded."""
        checker = self._checker
        if isinstance(node.value, str):
            node = replace_entries(node, {"type": node})
        if not node.is_mapping:
            what = f"expected a mapping, got {show(node.to_plain())}"
            checker.report(path, what, node.place, "write optim: {lr: 1e-4}")
            return node
        own = section_signature(SECTIONS["optim"], checker.registry.finder)
        return self._several(path, node, own) if self.names else self._one(path, node, "optim", own)

    def _several(self, path: str, node: Node, own: Signature) -> Node:
        shared = tuple(item for item in own.parameters if item.name in SHARED_KEYS)
        keys = {name: child for name, child in node.mapping.items() if name in SHARED_KEYS}
        signature = replace(own, parameters=without_defaults(shared))
        entries = dict(
            check_without_defaults(self._checker, path, replace_entries(node, keys), signature)
        )
        for name, child in node.mapping.items():
            if name in SHARED_KEYS:
                continue
            entries[name] = child
            here = f"{path}.{name}"
            if name not in self.names:
                self._report_unknown(here, name, child, own)
            elif not child.is_mapping:
                what = f"expected a mapping, got {show(child.to_plain())}"
                hint = f"write {name}: {{lr: 1e-4}}"
                self._checker.report(here, what, child.place, hint)
            else:
                entries[name] = self._member(here, child, name)
        return replace_entries(node, entries)

    def _member(self, path: str, node: Node, name: str) -> Node:
        own = member_signature(SECTIONS["optim"], self._checker.registry.finder)
        for key, hint in (("match", "its parameters stay the same"), ("schedule", _OWN_SCHEDULE)):
            if key in node.mapping:
                what = f"{key!r} of one of several optimizers cannot change"
                place = node.mapping[key].key_place
                self._checker.report(f"{path}.{key}", what, place, hint)
                rest = {one: child for one, child in node.mapping.items() if one != key}
                node = replace_entries(node, rest)
        return self._one(path, node, f"optim.{name}", own)

    def _report_unknown(self, path: str, name: str, node: Node, own: Signature) -> None:
        what, hint = f"there is no optimizer {name!r}", suggest_known(name, self.names)
        if own.get(name) is not None or not node.is_mapping:
            what = f"{name!r} must be set for one of several optimizers"
            hint = f"write {self.names[0]}: {{{name}: ...}}"
        self._checker.report(path, what, node.key_place, hint)

    def _one(self, path: str, node: Node, key: str, own: Signature) -> Node:
        """The changes of one optimizer: some of its keys, or another type."""
        checker = self._checker
        own = replace(own, parameters=(*without_defaults(own.parameters), _STATE))
        if "freeze" in node.mapping:
            what, place = (
                "freeze is a key of the stage, not of optim",
                node.mapping["freeze"].key_place,
            )
            checker.report(f"{path}.freeze", what, place, "write freeze: beside optim:")
        before = self._factories[key]
        if "type" in node.mapping:
            count = len(checker.defaults)
            node = checker.spec(path, node, "optimizer", own)
            names = {f"{path}.{item.name}" for item in own.parameters}
            checker.defaults[count:] = [
                one for one in checker.defaults[count:] if one.key not in names
            ]
            self._factories[key] = checker.factories.get(path)
            self._check_state(path, node, before, self._factories[key])
        else:
            known = Signature("the optimizer", open=True)
            if before is not None:
                known = read_signature(before, checker.registry.finder)
                checker.factories[path] = before
            known = replace(known, parameters=without_defaults(known.parameters))
            node = replace_entries(node, check_without_defaults(checker, path, node, own, known))
        check_optimizer(checker, path, node)
        return node

    def _check_state(
        self, path: str, node: Node, before: Factory | None, after: Factory | None
    ) -> None:
        state = node.get("state")
        if state.value != "keep" or before is None or after is None:
            return
        if before.dotted != after.dotted:
            what = f"{after.name} cannot use the state of {before.name}"
            hint = "write state: reset, or leave it out"
            self._checker.report(f"{path}.state", what, state.place, hint)


_OWN_SCHEDULE = "write schedule: beside optim:, for all of them"


def find_rate_change(node: Node, names: Collection[str]) -> str:
    """The first key of a stage's changes that changes the rates or the state of an optimizer."""
    parts = [(f"{name}.", node.mapping[name]) for name in names if name in node.mapping]
    for prefix, part in parts if names else [("", node)]:
        changed = [key for key in RATE_KEYS if key in part.mapping]
        if changed:
            return prefix + changed[0]
        if part.get("state").value == "reset":
            return f"{prefix}state"
    return ""


def expand_optimizer(node: Node, registry: Registry) -> Node:
    """A section ``optim`` that code assembled, with its defaults.

    Raises:
        ConfigError: It has mistakes.
    """
    checker, section = ConfigChecker(registry, Mistakes()), SECTIONS["optim"]
    own = section_signature(section, registry.finder)
    if has_members(section, node):
        expanded = expand_members(checker, section, node, own)
        parts = {f"optim.{name}": one for name, one in expanded.mapping.items() if one.is_mapping}
    else:
        expanded = checker.spec("optim", node, "optimizer", own)
        parts = {"optim": expanded}
    if not checker.mistakes.problems:
        for path, part in parts.items():
            check_optimizer(checker, path, part)
    if checker.mistakes.problems:
        raise ConfigError(*checker.mistakes.problems)
    return expanded


def without_defaults(parameters: tuple[Parameter, ...]) -> tuple[Parameter, ...]:
    """The same parameters, but a missing value stays missing."""
    return tuple(replace(item, default=Opaque("as before")) for item in parameters)


def check_without_defaults(
    checker: ConfigChecker, path: str, node: Node, *signatures: Signature
) -> dict[str, Node]:
    """The checked entries of a mapping, without defaults."""
    count = len(checker.defaults)
    found = checker.entries(path, node, signatures, Place("default"))
    del checker.defaults[count:]
    return dict(found.mapping)
