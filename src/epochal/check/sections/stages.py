"""Checks the section ``stages``: each stage against the sections that it changes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, final

from epochal.check.sections.losses import TOTAL_LOSS, loss_term_names
from epochal.check.sections.methods import has_method
from epochal.check.sections.optim import check_optimizer
from epochal.check.sections.schedule import read_length
from epochal.check.sections.section_shapes import (
    SHARED_KEYS,
    expand_section,
    expand_shared_keys,
    has_members,
    member_signature,
)
from epochal.check.sections.sections import SECTIONS, read_table, section_signature
from epochal.check.sections.shape_problems import report_shape
from epochal.check.signatures.parameters import Opaque, Parameter, Signature
from epochal.check.signatures.signature import method_signature, read_signature
from epochal.check.values.unknown_keys import describe_unknown, suggest_known
from epochal.config.duration import Duration
from epochal.config.node import Node
from epochal.config.scalar import show
from epochal.errors import COMMAND_LINE, Place

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from epochal.check.values.checker import ConfigChecker
    from epochal.registry import Factory
    from epochal.registry.module_finder import ModuleFinder
    from epochal.registry.parsed_module import Definition

_SPECS = ("optim", "schedule", "data", "task", "loss")
"""Keys of a stage that are checked against the section that they change."""

_TORCH = "torch.optim.lr_scheduler."
_RATE_KEYS = "epochal.engine.stages.check_stages:_RATE_KEYS"
_STATE = Parameter("state", "Literal['keep', 'reset']", Opaque("as fits"))


def stage_name(index: int, node: Node) -> str:
    """The name of a stage."""
    name = node.get("name").value
    return f"stage{index + 1}" if name is None else str(name)


def expand_stages(
    checker: ConfigChecker, node: Node, entries: dict[str, Node], given: Collection[str] = ()
) -> None:
    """Check the stages against the other sections, and put the expanded stages into ``entries``."""
    if not node.is_list or not node.elements:
        report_shape(checker, "stages", node, "a list of stages", "write stages: [{for: 5ep}, ...]")
        return
    _StageChecker(checker, entries, given).expand(node)
    _check_train_length(checker, node, entries)


@final
class _StageChecker:
    """Checks stages in order, after the changes of earlier ones."""

    def __init__(
        self, checker: ConfigChecker, entries: dict[str, Node], given: Collection[str]
    ) -> None:
        self.checker, self.entries, self.given = checker, entries, given
        self.task = None if "task" in given else checker.find_definition("task")
        self.signature = _stage_start_signature(self.task, checker.finder)
        self.optim = _OptimChecker(checker, entries.get("optim"))
        self.params: set[str] = set()
        self.names: set[str] = set()
        self.had_schedule = False

    def expand(self, node: Node) -> None:
        """Put every stage into the entries, expanded, and report what is wrong."""
        stages = []
        for index, child in enumerate(node.elements):
            path = f"stages.{index}"
            if not child.is_mapping:
                report_shape(self.checker, path, child, "a mapping", "write {for: 5ep}")
                continue
            is_last = index + 1 == len(node.elements)
            self._check_name(path, child, stage_name(index, child))
            self._check_end(path, child, is_last=is_last)
            stages.append(self._expand_one(path, child))
        self.entries["stages"] = replace(node, value=tuple(stages))

    def _expand_one(self, path: str, node: Node) -> Node:
        own = Signature("section 'stages'", SECTIONS["stages"].keys)
        expanded = dict(_check_changes(self.checker, path, node.without(*_SPECS), own).mapping)
        expand: dict[str, Callable[[str, Node], Node]] = {
            "optim": self.optim.expand,
            "schedule": partial(self._section, "schedule"),
            "data": partial(self._section, "data"),
            "loss": self._loss,
            "task": self._task,
        }
        for key in _SPECS:
            child = node.get(key)
            if child.value is not None:
                expanded[key] = expand[key](f"{path}.{key}", child)
        self._check_schedule(path, node)
        self._check_required(path, node)
        order = [key for key in node.mapping if key in expanded]
        return node.with_entries({key: expanded[key] for key in order})

    def _check_name(self, path: str, node: Node, name: str) -> None:
        if name in self.names:
            place = node.mapping["name"].place if "name" in node.mapping else node.place
            what = f"two stages are called {name!r}"
            self.checker.report(f"{path}.name", what, place, "give one another name")
        self.names.add(name)

    def _check_end(self, path: str, node: Node, *, is_last: bool) -> None:
        until = node.get("until")
        has_end = node.get("for").value is not None or until.value is not None
        if not has_end and not self.checker.has_any(path):
            what = "the stage has no end"
            what += "" if is_last else ", so the next one would never start"
            hint = "add for: 5ep, or until: {plateau: 3}"
            self.checker.report(path, what, node.place, hint)
        if until.is_mapping:
            self._check_plateau(f"{path}.until", until)

    def _check_plateau(self, path: str, node: Node) -> None:
        report = self.checker.report
        for key, child in node.mapping.items():
            number = child.value
            if key != "plateau":
                hint = "write until: {plateau: 3}, or until: val/acc >= 0.9"
                report(f"{path}.{key}", describe_unknown(key), child.key_place, hint)
            elif isinstance(number, int) and not isinstance(number, bool) and number < 1:
                what = f"must be at least 1, got {number!r}"
                report(f"{path}.{key}", what, child.place, "write 1 or more")
        if not node.mapping:
            report(path, "is empty", node.place, "write until: {plateau: 3}")
        monitor = self.entries.get("monitor")
        has_monitor = monitor is not None and monitor.value is not None
        has_own_error = (
            self.task is None
            or has_method(self.task, "post_metric_to_err", self.checker.finder) is not False
        )
        if "plateau" in node.mapping and not has_monitor and not has_own_error:
            what = "a plateau needs a monitor, and the run has none"
            hint = "add monitor: -val/loss, or +val/acc if larger is better"
            report(path, what, node.place, hint)

    def _section(self, name: str, path: str, node: Node) -> Node:
        return expand_section(self.checker, replace(SECTIONS[name], name=path), node)

    def _check_schedule(self, path: str, node: Node) -> None:
        """Report a scheduler of torch that a change of its optimizer would break."""
        if node.get("schedule").value is not None:
            self.had_schedule = True
            return
        names = self.optim.names
        owners = {f"optim.{name}.schedule": (name,) for name in names} | {"schedule": names}
        for key, whose in owners.items():
            factory = self.checker.factories.get(key)
            if factory is None or not factory.dotted.startswith(_TORCH):
                continue
            changed = _find_rate_change(node.get("optim"), whose, self.checker.finder)
            if self.had_schedule or changed:
                why = f"after a change of {changed}" if changed else ""
                why = "with another optimizer" if changed.endswith("state") else why
                why = "after a stage with its own schedule" if self.had_schedule else why
                what = f"{factory.name}, the run's schedule from torch, cannot continue {why}"
                hint = "add schedule: to this stage, or use a schedule of Epochal for the run"
                self.checker.report(path, what, node.place, hint)
                return

    def _loss(self, path: str, node: Node) -> Node:
        checker = self.checker
        known = loss_term_names(Node(MappingProxyType(self.entries)))
        known = known - {TOTAL_LOSS} or known
        if not known and "loss" not in self.given:
            what = "there is no section loss with weights to change"
            hint = "give the weight to the task: task: {...}"
            checker.report(path, what, node.key_place, hint)
        weight = Parameter("weight", "float")
        for name, child in node.mapping.items():
            checker.value(f"{path}.{name}", child, weight, "section 'loss'")
            if known and name not in known:
                what, hint = f"the loss has no term {name!r}", suggest_known(name, known)
                checker.report(f"{path}.{name}", what, child.key_place, hint)
        if not node.is_mapping:
            wanted = "a mapping of terms to weights"
            report_shape(checker, path, node, wanted, "write loss: {aux: 0.5}")
        return node

    def _task(self, path: str, node: Node) -> Node:
        checker = self.checker
        if not node.is_mapping:
            report_shape(checker, path, node, "a mapping", "write task: {mix: 0.5}")
            return node
        self.params |= node.mapping.keys()
        task, signature = self.task, self.signature
        if signature is not None:
            return _check_changes(checker, path, node, signature)
        if task is not None and has_method(task, "on_stage_start", checker.finder) is False:
            name = next(iter(node.mapping), "mix")
            what = f"{task.dotted} has no on_stage_start to receive it"
            hint = f"write def on_stage_start(self, *, {name}: float) in class {task.node.name}"
            checker.report(path, what, node.key_place, hint)
        return node

    def _check_required(self, path: str, node: Node) -> None:
        """Report arguments that the task's ``on_stage_start`` requires."""
        if self.signature is None:
            return
        for item in self.signature.parameters:
            if item.is_required and item.name not in self.params:
                what = f"missing; {self.signature.owner} requires it"
                here = f"{path}.task.{item.name}"
                self.params.add(item.name)
                self.checker.report(here, what, node.place, f"add {item.name}: ...")


@final
class _OptimChecker:
    """Checks the key ``optim`` of stages in order; remembers the optimizers that they chose."""

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
            node = node.with_entries({"type": node})
        if not node.is_mapping:
            report_shape(checker, path, node, "a mapping", "write optim: {lr: 1e-4}")
            return node
        own = section_signature(SECTIONS["optim"], checker.finder)
        own = replace(own, is_partial=True)
        return self._several(path, node, own) if self.names else self._one(path, node, "optim", own)

    def _several(self, path: str, node: Node, own: Signature) -> Node:
        entries = expand_shared_keys(self._checker, path, node, own)
        for name, child in node.mapping.items():
            if name in SHARED_KEYS:
                continue
            entries[name] = child
            here = f"{path}.{name}"
            if name not in self.names:
                self._report_unknown(here, name, child, own)
            elif not child.is_mapping:
                hint = f"write {name}: {{lr: 1e-4}}"
                report_shape(self._checker, here, child, "a mapping", hint)
            else:
                entries[name] = self._member(here, child, name)
        return node.with_entries(entries)

    def _member(self, path: str, node: Node, name: str) -> Node:
        own = member_signature(SECTIONS["optim"], self._checker.finder)
        fixed = {
            "match": "its parameters stay the same",
            "schedule": "write schedule: beside optim:, for all of them",
        }
        for key, hint in fixed.items():
            if key in node.mapping:
                what = f"{key!r} of one of several optimizers cannot change"
                place = node.mapping[key].key_place
                self._checker.report(f"{path}.{key}", what, place, hint)
        return self._one(path, node.without(*fixed), f"optim.{name}", own)

    def _report_unknown(self, path: str, name: str, node: Node, own: Signature) -> None:
        what, hint = f"there is no optimizer {name!r}", suggest_known(name, self.names)
        if own.get(name) is not None or not node.is_mapping:
            what = f"{name!r} must be set for one of several optimizers"
            hint = f"write {self.names[0]}: {{{name}: ...}}"
        self._checker.report(path, what, node.key_place, hint)

    def _one(self, path: str, node: Node, key: str, own: Signature) -> Node:
        """The changes of one optimizer: some of its keys, or another type."""
        checker = self._checker
        own = replace(own, parameters=(*own.parameters, _STATE), is_partial=True)
        freeze = node.mapping.get("freeze")
        if freeze is not None:
            what = "freeze is a key of the stage, not of optim"
            checker.report(f"{path}.freeze", what, freeze.key_place, "write freeze: beside optim:")
        before = self._factories[key]
        if "type" in node.mapping:
            node = checker.spec(path, node, "optimizer", own)
            self._factories[key] = checker.factories.get(path)
            self._check_state(path, node, before, self._factories[key])
        else:
            known = Signature("the optimizer", open=True)
            if before is not None:
                known = read_signature(before, checker.finder)
                checker.factories[path] = before
            node = _check_changes(checker, path, node, own, known)
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


def _find_rate_change(node: Node, names: Collection[str], finder: ModuleFinder) -> str:
    """The first key of a stage's changes that changes the rates or the state of an optimizer."""
    keys: list[str] = list(read_table(_RATE_KEYS, finder))
    parts = [(f"{name}.", node.mapping[name]) for name in names if name in node.mapping]
    for prefix, part in parts if names else [("", node)]:
        changed = [key for key in keys if key in part.mapping]
        if changed:
            return prefix + changed[0]
        if part.get("state").value == "reset":
            return f"{prefix}state"
    return ""


def _check_changes(checker: ConfigChecker, path: str, node: Node, *signatures: Signature) -> Node:
    """A checked mapping, without defaults."""
    partial = tuple(replace(one, is_partial=True) for one in signatures)
    return checker.entries(path, node, partial, Place("default"))


def _stage_start_signature(task: Definition | None, finder: ModuleFinder) -> Signature | None:
    """The parameters of the task's ``on_stage_start``, if its source shows them."""
    found = None if task is None else method_signature(task, "on_stage_start", finder)
    if found is None:
        return None
    own = tuple(item for item in found.parameters if item.name not in ("run", "name"))
    return replace(found, parameters=own)


def _check_train_length(checker: ConfigChecker, stages: Node, entries: dict[str, Node]) -> None:
    """Remove a default ``train.for``, or report one that is not the sum of the stages."""
    train = entries.get("train")
    node = None if train is None else train.mapping.get("for")
    if train is None or node is None:
        return
    if node.layer in ("default", COMMAND_LINE):
        entries["train"] = train.without("for")
        checker.defaults[:] = [one for one in checker.defaults if one.key != "train.for"]
        if node.layer == COMMAND_LINE:  # --fast and --epochs apply to each stage
            expanded = entries["stages"]
            shorter = (one.with_entries({**one.mapping, "for": node}) for one in expanded.elements)
            entries["stages"] = replace(expanded, value=tuple(shorter))
        return
    total = _sum_lengths(stages)
    if total is None or str(total) != str(read_length(node.value)):
        what = f"{show(node.value)} is not the sum of the stages"
        what = what if total is None else f"{what}, {total}"
        checker.report("train.for", what, node.place, "remove it: the stages say how long")


def _sum_lengths(stages: Node) -> Duration | None:
    lengths = [read_length(stage.get("for").value) for stage in stages.elements]
    units = {length.unit for length in lengths if length is not None}
    if len(units) != 1 or None in lengths:
        return None
    return Duration(sum(length.amount for length in lengths if length is not None), units.pop())
