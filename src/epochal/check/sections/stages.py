"""Checks the section ``stages``: each stage against the sections that it changes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, final

from epochal.check.sections.losses import TOTAL_LOSS, loss_term_names
from epochal.check.sections.methods import has_method
from epochal.check.sections.section_shapes import expand_section
from epochal.check.sections.sections import SECTIONS
from epochal.check.sections.stage_optim import (
    StageOptimChecker,
    check_without_defaults,
    find_rate_change,
    without_defaults,
)
from epochal.check.signatures.parameters import Parameter, Signature
from epochal.check.signatures.signature import method_signature
from epochal.check.values.checker import ConfigChecker, replace_entries, suggest_known
from epochal.config.duration import Duration, parse_duration
from epochal.config.node import Node
from epochal.config.scalar import show
from epochal.errors import COMMAND_LINE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from epochal.registry.module_finder import ModuleFinder
    from epochal.registry.parsed_module import Definition

_SPECS = ("optim", "schedule", "data", "task", "loss")
"""Keys of a stage that are checked against the section that they change."""

_TORCH = "torch.optim.lr_scheduler."


def stage_name(index: int, node: Node) -> str:
    """The name of a stage."""
    name = node.get("name").value
    return f"stage{index + 1}" if name is None else str(name)


def expand_stages(
    checker: ConfigChecker, node: Node, entries: dict[str, Node], given: Collection[str] = ()
) -> None:
    """Check the stages against the other sections, and put the expanded stages into ``entries``."""
    if not node.is_list or not node.elements:
        if not checker.mistakes.is_known_bad("stages"):
            what = f"expected a list of stages, got {show(node.to_plain())}"
            checker.report("stages", what, node.place, "write stages: [{for: 5ep}, ...]")
        return
    _StageChecker(checker, entries, given).expand(node)
    _check_train_length(checker, node, entries)


@final
class _StageChecker:
    """Checks stages in order, with what the earlier ones changed."""

    def __init__(
        self, checker: ConfigChecker, entries: dict[str, Node], given: Collection[str]
    ) -> None:
        self.checker, self.entries, self.given = checker, entries, given
        self.task = None if "task" in given else checker.find_definition("task")
        self.signature = _stage_start_signature(self.task, checker.registry.finder)
        self.optim = StageOptimChecker(checker, entries.get("optim"))
        self.params: set[str] = set()
        self.names: set[str] = set()
        self.had_schedule = False

    def expand(self, node: Node) -> None:
        """Put every stage into the entries, expanded, and report what is wrong."""
        stages = []
        for index, child in enumerate(node.elements):
            path = f"stages.{index}"
            if not child.is_mapping:
                what = f"expected a mapping, got {show(child.to_plain())}"
                self.checker.report(path, what, child.place, "write {for: 5ep}")
                continue
            is_last = index + 1 == len(node.elements)
            self._check_name(path, child, stage_name(index, child))
            self._check_end(path, child, is_last=is_last)
            stages.append(self._expand_one(path, child))
        self.entries["stages"] = replace(node, value=tuple(stages))

    def _expand_one(self, path: str, node: Node) -> Node:
        plain = {key: child for key, child in node.mapping.items() if key not in _SPECS}
        own = Signature("section 'stages'", without_defaults(SECTIONS["stages"].keys))
        expanded = check_without_defaults(self.checker, path, replace_entries(node, plain), own)
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
        return replace_entries(node, {key: expanded[key] for key in order})

    def _check_name(self, path: str, node: Node, name: str) -> None:
        if name in self.names:
            place = node.mapping["name"].place if "name" in node.mapping else node.place
            what = f"two stages are called {name!r}"
            self.checker.report(f"{path}.name", what, place, "give one another name")
        self.names.add(name)

    def _check_end(self, path: str, node: Node, *, is_last: bool) -> None:
        until = node.get("until")
        has_end = node.get("for").value is not None or until.value is not None
        if not has_end and not self.checker.mistakes.has_any(path):
            what = "the stage has no end"
            what += "" if is_last else ", so the next one would never start"
            hint = "add for: 5ep, or until: {plateau: 3}"
            self.checker.report(path, what, node.place, hint)
        if until.is_mapping:
            self._check_plateau(f"{path}.until", until)

    def _check_plateau(self, path: str, node: Node) -> None:
        report = self.checker.mistakes.report
        for key, child in node.mapping.items():
            number = child.value
            if key != "plateau":
                hint = "write until: {plateau: 3}, or until: val/acc >= 0.9"
                report(f"{path}.{key}", f"unknown key {key!r}", child.key_place, hint)
            elif isinstance(number, int) and not isinstance(number, bool) and number < 1:
                what = f"must be at least 1, got {number!r}"
                report(f"{path}.{key}", what, child.place, "write 1 or more")
        if not node.mapping:
            report(path, "is empty", node.place, "write until: {plateau: 3}")
        monitor = self.entries.get("monitor")
        has_monitor = monitor is not None and monitor.value is not None
        finder = self.checker.registry.finder
        has_own_error = (
            self.task is None or has_method(self.task, "post_metric_to_err", finder) is not False
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
            changed = find_rate_change(node.get("optim"), whose)
            if self.had_schedule or changed:
                why = f"after a change of {changed}" if changed else ""
                why = "with another optimizer" if changed.endswith("state") else why
                why = "after a stage with its own schedule" if self.had_schedule else why
                what = f"{factory.name}, the run's schedule from torch, cannot continue {why}"
                hint = "add schedule: to this stage, or use one that is not torch's for the run"
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
            what = f"expected a mapping of terms to weights, got {show(node.to_plain())}"
            checker.report(path, what, node.place, "write loss: {aux: 0.5}")
        return node

    def _task(self, path: str, node: Node) -> Node:
        checker = self.checker
        if not node.is_mapping:
            what = f"expected a mapping, got {show(node.to_plain())}"
            checker.report(path, what, node.place, "write task: {mix: 0.5}")
            return node
        self.params |= node.mapping.keys()
        task, signature = self.task, self.signature
        if signature is not None:
            signature = replace(signature, parameters=without_defaults(signature.parameters))
            return replace_entries(node, check_without_defaults(checker, path, node, signature))
        finder = checker.registry.finder
        if task is not None and has_method(task, "on_stage_start", finder) is False:
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
        rest = {key: child for key, child in train.mapping.items() if key != "for"}
        entries["train"] = replace_entries(train, rest)
        checker.defaults[:] = [one for one in checker.defaults if one.key != "train.for"]
        if node.layer == COMMAND_LINE:  # --fast and --epochs apply to each stage
            expanded = entries["stages"]
            shorter = (
                replace_entries(one, {**one.mapping, "for": node}) for one in expanded.elements
            )
            entries["stages"] = replace(expanded, value=tuple(shorter))
        return
    total = _sum_lengths(stages)
    if total is None or str(total) != str(_length(node)):
        what = f"{show(node.value)} is not the sum of the stages"
        what = what if total is None else f"{what}, {total}"
        checker.report("train.for", what, node.place, "remove it: the stages say how long")


def _sum_lengths(stages: Node) -> Duration | None:
    lengths = [_length(stage.get("for")) for stage in stages.elements]
    units = {length.unit for length in lengths if length is not None}
    if len(units) != 1 or None in lengths:
        return None
    return Duration(sum(length.amount for length in lengths if length is not None), units.pop())


def _length(node: Node) -> Duration | None:
    try:
        return parse_duration(str(node.value))
    except ValueError:
        return None
