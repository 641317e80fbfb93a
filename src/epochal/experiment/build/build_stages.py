"""Builds the stages of the section ``stages``, and the optimizer after changes of its section."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from epochal.check import (
    SECTIONS,
    expand_optimizer,
    has_members,
    member_signature,
    section_signature,
    stage_name,
)
from epochal.config import Node, from_plain, parse_condition, parse_duration
from epochal.engine.device.seeding import derive_seed, seeded
from epochal.engine.interfaces.splits import split_name
from epochal.engine.interfaces.stage import Plateau, Stage
from epochal.errors import ConfigError, Place, Problem, suggest
from epochal.experiment.build.build_parts import build_split
from epochal.experiment.build.optimizer import (
    build_optimizer_from,
    build_schedule_from,
    read_optim_options,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import nn
    from torch.optim import Optimizer

    from epochal.check import Signature
    from epochal.config.condition import Condition
    from epochal.engine.interfaces.options import OptimOptions
    from epochal.engine.interfaces.schedule import AnySchedule
    from epochal.experiment.build.builder import Assembly

    OptimChange = Mapping[str, Any]  # keys of `optim` with their new values

_SELECTOR_KEYS = frozenset({"match", "module", "name"})
"""Keys of a rule that select parameters; a rule with no others changes nothing."""


def build_stages(assembly: Assembly) -> tuple[Stage, ...]:
    """The stages of the section ``stages``; each builds its loaders and schedule at its start."""
    node = assembly.config.mapping.get("stages")
    elements = node.elements if node is not None else ()
    return tuple(_build_stage(assembly, index, child) for index, child in enumerate(elements))


def _build_stage(assembly: Assembly, index: int, node: Node) -> Stage:
    key = f"stages.{index}"
    plain = {name: child.to_plain() for name, child in node.mapping.items()}
    length = plain.get("for")
    return Stage(
        name=stage_name(index, node),
        length=None if length is None else parse_duration(length),
        until=_read_until(plain.get("until")),
        optim=_read_changes(node.mapping.get("optim")),
        schedule=_schedule(assembly, node.mapping.get("schedule"), f"{key}.schedule"),
        loss=plain.get("loss") or {},
        freeze=tuple(plain.get("freeze") or ()),
        unfreeze=tuple(plain.get("unfreeze") or ()),
        data=_loaders(assembly, node.mapping.get("data"), f"{key}.data"),
        batch_size=plain.get("batch_size"),
        task=plain.get("task") or {},
        key=key,
    )


def _read_changes(node: Node | None) -> dict[str, Any]:
    """What the config says, without defaults: those are filled in when the optimizer is built."""
    entries = node.mapping if node is not None else {}
    return {
        key: _read_changes(one) if one.is_mapping else one.to_plain()
        for key, one in entries.items()
        if one.layer != "default"
    }


def _read_until(until: str | Mapping[str, int] | None) -> Condition | Plateau | None:
    if until is None:
        return None
    return parse_condition(until) if isinstance(until, str) else Plateau(until["plateau"])


def _schedule(
    assembly: Assembly, node: Node | None, path: str
) -> Callable[[Optimizer], AnySchedule] | None:
    if node is None or node.value is None:
        return None

    def build(optimizer: Optimizer) -> AnySchedule:
        with seeded(derive_seed(assembly.seed, path)):
            return build_schedule_from(assembly, node, optimizer, path=path)

    return build


def _loaders(assembly: Assembly, node: Node | None, path: str) -> dict[str, Callable[[], Any]]:
    def build(child: Node, split: str) -> object:
        with seeded(derive_seed(assembly.seed, f"{path}.{split}")):
            return build_split(assembly, child, split, f"{path}.{split}")

    entries = node.mapping if node is not None else {}
    return {split_name(split): partial(build, child, split) for split, child in entries.items()}


def rebuild_optimizer(
    assembly: Assembly, model: nn.Module, changes: Sequence[OptimChange]
) -> tuple[Optimizer, OptimOptions]:
    """The optimizer of the section ``optim`` after some changes, and the section's own options.

    It has all parameters that need a gradient. The assembly must have the task.
    """
    node = expand_optimizer(_merge_all(assembly, changes), assembly.builder.registry)
    with seeded(derive_seed(assembly.seed, "optim")):
        optimizer = build_optimizer_from(assembly, node, model, assembly.task)
    return optimizer, read_optim_options(assembly, node)


def _merge_all(assembly: Assembly, changes: Sequence[OptimChange]) -> Node:
    """The section after all changes."""
    section, known = assembly.config.mapping["optim"], SECTIONS["optim"]
    finder = assembly.builder.registry.finder
    nodes = [from_plain(dict(change), place=Place("a change of optim")) for change in changes]
    if not has_members(known, section):
        return _merge(section, nodes, section_signature(known, finder))
    entries = dict(section.mapping)
    members = [name for name, child in section.mapping.items() if child.is_mapping]
    own = member_signature(known, finder)
    for name in members:
        parts = [node.mapping[name] for node in nodes if name in node.mapping]
        entries[name] = _merge(entries[name], parts, own)
    for node in nodes:
        entries |= {name: child for name, child in node.mapping.items() if not child.is_mapping}
        _require_changeable(node, members)
    return replace(section, value=MappingProxyType(entries))


def _merge(section: Node, changes: Sequence[Node], own: Signature) -> Node:
    """The section of one optimizer after some changes."""
    entries = dict(section.mapping)
    names = {item.name for item in own.parameters}
    for change in changes:
        if "type" in change.mapping:  # the arguments of another optimizer have other meanings
            entries = {name: child for name, child in entries.items() if name in names}
        entries |= {name: child for name, child in change.mapping.items() if name != "state"}
    entries.pop("freeze", None)  # the parameters are already frozen
    if "groups" in entries:
        rules = [_without_freeze(rule) for rule in entries["groups"].elements]
        rules = [rule for rule in rules if rule.mapping.keys() - _SELECTOR_KEYS]
        entries["groups"] = Node(tuple(rules), entries["groups"].place)
    return replace(section, value=MappingProxyType(entries))


def _require_changeable(change: Node, members: Sequence[str]) -> None:
    """Refuse to change an optimizer that does not exist, or the parameters of one."""
    for name, child in change.mapping.items():
        if not child.is_mapping:
            continue
        if name not in members:
            hint = suggest(name, members) or f"there are {', '.join(members)}"
            what = f"there is no optimizer {name!r}"
            raise ConfigError(Problem(f"optim.{name}", what, hint=hint))
        for key in ("match", "schedule"):
            if key in child.mapping:
                what = f"{key!r} of one of several optimizers cannot change"
                raise ConfigError(Problem(f"optim.{name}.{key}", what))


def _without_freeze(rule: Node) -> Node:
    entries = {key: child for key, child in rule.mapping.items() if key != "freeze"}
    return Node(MappingProxyType(entries), rule.place)
