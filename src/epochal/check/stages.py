"""The section ``stages``: each stage against what the sections say that it changes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, final

from epochal.check.literals import Opaque
from epochal.check.losses import TOTAL, term_names
from epochal.check.methods import find_method
from epochal.check.optim import check_optimizer
from epochal.check.parameters import Parameter, Signature
from epochal.check.report import Mistakes
from epochal.check.sections import SECTIONS, own_signature
from epochal.check.several import has_members
from epochal.check.shapes import expand_section
from epochal.check.signature import method_signature, read_signature
from epochal.check.walk import Walk, listing, with_entries
from epochal.config.duration import Duration, parse_duration
from epochal.config.node import Node
from epochal.config.scalar import show
from epochal.errors import COMMAND_LINE, ConfigError, Place
from epochal.registry.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from epochal.registry import Factory, Registry
    from epochal.registry.source import Definition

_DEFAULT = Place("default")
_SPECS = ("optim", "schedule", "data", "task", "loss")
"""Keys of a stage that are checked against something else than their types."""

_STATE = Parameter("state", "Literal['keep', 'reset']", Opaque("as fits"))
_RATES = ("type", "lr", "groups", "layer_decay", "no_decay")
_TORCH = "torch.optim.lr_scheduler."


def stage_name(index: int, node: Node) -> str:
    """What a stage is called."""
    name = node.mapping.get("name")
    return str(name.value) if name is not None and name.value is not None else f"stage{index + 1}"


def expand_stages(
    walk: Walk, node: Node, entries: dict[str, Node], given: Collection[str] = ()
) -> None:
    """Check the stages against the other sections, and put them with these, expanded."""
    if not node.is_list or not node.elements:
        if not walk.mistakes.is_known_bad("stages"):
            what = f"expected a list of stages, got {show(node.to_plain())}"
            walk.mistakes.report("stages", what, node.place, "write stages: [{for: 5ep}, ...]")
        return
    _Stages(walk, entries, given).expand(node)
    _settle_length(walk, node, entries)


@final
class _Stages:
    """Knows what holds when a stage begins, as far as the check needs it."""

    def __init__(self, walk: Walk, entries: dict[str, Node], given: Collection[str]) -> None:
        self.walk, self.entries, self.given = walk, entries, given
        self.optimizer: Factory | None = walk.factories.get("optim")
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
                self.walk.mistakes.report(path, what, child.place, "write {for: 5ep}")
                continue
            is_last = index + 1 == len(node.elements)
            self._check_name(path, child, stage_name(index, child))
            self._check_end(path, child, is_last=is_last)
            stages.append(self._expand_one(path, child))
        self.entries["stages"] = replace(node, value=tuple(stages))

    def _expand_one(self, path: str, node: Node) -> Node:
        plain = {key: child for key, child in node.mapping.items() if key not in _SPECS}
        own = Signature("section 'stages'", _unfilled(SECTIONS["stages"].keys))
        expanded = dict(self._entries(path, with_entries(node, plain), (own,)).mapping)
        expand: dict[str, Callable[[str, Node], Node]] = {
            "optim": self._optim,
            "schedule": partial(self._section, "schedule"),
            "data": partial(self._section, "data"),
            "loss": self._loss,
            "task": self._task,
        }
        for key in _SPECS:
            child = node.mapping.get(key)
            if child is not None and child.value is not None:
                expanded[key] = expand[key](f"{path}.{key}", child)
        self._check_schedule(path, node)
        self._check_required(path, node)
        order = [key for key in node.mapping if key in expanded]
        return with_entries(node, {key: expanded[key] for key in order})

    def _entries(self, path: str, node: Node, signatures: tuple[Signature, ...]) -> Node:
        """The entries against signatures, without any defaults."""
        count = len(self.walk.defaults)
        found = self.walk.entries(path, node, signatures, _DEFAULT)
        del self.walk.defaults[count:]
        return found

    def _check_name(self, path: str, node: Node, name: str) -> None:
        if name in self.names:
            place = node.mapping["name"].place if "name" in node.mapping else node.place
            what = f"two stages are called {name!r}"
            self.walk.mistakes.report(f"{path}.name", what, place, "give one another name")
        self.names.add(name)

    def _check_end(self, path: str, node: Node, *, is_last: bool) -> None:
        until = node.mapping.get("until")
        has_end = any(
            key in node.mapping and node.mapping[key].value is not None for key in ("for", "until")
        )
        if not has_end and not self.walk.mistakes.has_any(path):
            what = "the stage has no end"
            what += "" if is_last else ", so that the next one could never start"
            hint = "add for: 5ep, or until: {plateau: 3}"
            self.walk.mistakes.report(path, what, node.place, hint)
        if until is not None and until.is_mapping:
            self._check_plateau(f"{path}.until", until)

    def _check_plateau(self, path: str, node: Node) -> None:
        report = self.walk.mistakes.report
        for key, child in node.mapping.items():
            number = child.value
            if key != "plateau":
                hint = "write until: {plateau: 3}, or until: val/acc >= 0.9"
                report(f"{path}.{key}", f"unknown key {key!r}", child.key_place, hint)
            elif isinstance(number, int) and not isinstance(number, bool) and number < 1:
                what = f"must be at least 1, got {number!r}"
                report(f"{path}.{key}", what, child.place, "write 1 or more")
        if not node.mapping:
            report(path, "says nothing", node.place, "write until: {plateau: 3}")
        monitor = self.entries.get("monitor")
        has_monitor = monitor is not None and monitor.value is not None
        if (
            "plateau" in node.mapping
            and not has_monitor
            and not _may_have_error(self.walk, self.given)
        ):
            what = "a plateau is one of the run's monitor, and there is none"
            hint = "add monitor: -val/loss, or +val/acc if larger is better"
            report(path, what, node.place, hint)

    def _optim(self, path: str, node: Node) -> Node:
        """Changes of the optimizer: keys of the one before, or another one."""
        walk, library = self.walk, self.walk.registry.library
        own = own_signature(SECTIONS["optim"], library)
        own = replace(own, parameters=(*_unfilled(own.parameters), _STATE))
        if isinstance(node.value, str):
            node = with_entries(node, {"type": node})
        if not node.is_mapping:
            what = f"expected a mapping, got {show(node.to_plain())}"
            walk.mistakes.report(path, what, node.place, "write optim: {lr: 1e-4}")
            return node
        section = self.entries.get("optim")
        if section is not None and has_members(SECTIONS["optim"], section):
            what = "there is no single optimizer whose options could change"
            hint = "change them from Python, in on_stage_start of the task"
            walk.mistakes.report(path, what, node.key_place, hint)
            return node
        if "freeze" in node.mapping:
            what, place = "a stage freezes by itself", node.mapping["freeze"].key_place
            walk.mistakes.report(f"{path}.freeze", what, place, "write freeze: beside optim:")
        before = self.optimizer
        if "type" in node.mapping:
            count = len(walk.defaults)
            node = walk.spec(path, node, "optimizer", own)
            names = {f"{path}.{item.name}" for item in own.parameters}
            walk.defaults[count:] = [one for one in walk.defaults[count:] if one.key not in names]
            self.optimizer = walk.factories.get(path)
            self._check_state(path, node, before)
        else:
            known = Signature("the optimizer", open=True)
            if before is not None:
                known = read_signature(before, library)
                walk.factories[path] = before
            known = replace(known, parameters=_unfilled(known.parameters))
            node = self._entries(path, node, (own, known))
        check_optimizer(walk, path, node)
        return node

    def _check_state(self, path: str, node: Node, before: Factory | None) -> None:
        state, after = node.mapping.get("state"), self.optimizer
        if state is None or state.value != "keep" or before is None or after is None:
            return
        if before.dotted != after.dotted:
            what = f"the state of {before.name} is of no use to {after.name}"
            hint = "write state: reset, or leave it out"
            self.walk.mistakes.report(f"{path}.state", what, state.place, hint)

    def _section(self, name: str, path: str, node: Node) -> Node:
        return expand_section(self.walk, replace(SECTIONS[name], name=path), node)

    def _check_schedule(self, path: str, node: Node) -> None:
        """A scheduler of torch cannot go on after a change of what it was built around."""
        schedule, optim = node.mapping.get("schedule"), node.mapping.get("optim")
        if schedule is not None and schedule.value is not None:
            self.had_schedule = True
            return
        factory = self.walk.factories.get("schedule")
        if factory is None or not factory.dotted.startswith(_TORCH):
            return
        changed = [key for key in _RATES if optim is not None and key in optim.mapping]
        state = None if optim is None else optim.mapping.get("state")
        is_reset = state is not None and state.value == "reset"
        if self.had_schedule or changed or is_reset:
            why = f"after a change of {changed[0]}" if changed else "with another optimizer"
            why = "after a stage with a schedule of its own" if self.had_schedule else why
            what = f"{factory.name}, the run's schedule from torch, cannot go on {why}"
            hint = "add schedule: to this stage, or use one that is not torch's for the run"
            self.walk.mistakes.report(path, what, node.place, hint)

    def _loss(self, path: str, node: Node) -> Node:
        walk = self.walk
        known = term_names(Node(MappingProxyType(self.entries)))
        known = known - {TOTAL} or known
        if not known and "loss" not in self.given:
            what = "there is no section loss whose weights could change"
            hint = "give the weight to the task: task: {...}"
            walk.mistakes.report(path, what, node.key_place, hint)
        weight = Parameter("weight", "float")
        for name, child in node.mapping.items():
            walk.value(f"{path}.{name}", child, weight, "section 'loss'")
            if known and name not in known:
                close = nearest(name, known)
                hint = f"did you mean {close!r}?" if close else listing(known)
                what = f"the loss has no term {name!r}"
                walk.mistakes.report(f"{path}.{name}", what, child.key_place, hint)
        if not node.is_mapping:
            what = f"expected a mapping of terms to weights, got {show(node.to_plain())}"
            walk.mistakes.report(path, what, node.place, "write loss: {aux: 0.5}")
        return node

    def _task(self, path: str, node: Node) -> Node:
        walk = self.walk
        if not node.is_mapping:
            what = f"expected a mapping, got {show(node.to_plain())}"
            walk.mistakes.report(path, what, node.place, "write task: {mix: 0.5}")
            return node
        self.params |= node.mapping.keys()
        task = _find_task(self.walk, self.given)
        if task is None:
            return node
        signature = _find_params(self.walk, self.given)
        if signature is not None:
            signature = replace(signature, parameters=_unfilled(signature.parameters))
            return self._entries(path, node, (signature,))
        if find_method(task, "on_stage_start", walk.registry.library) is False:
            name = next(iter(node.mapping), "mix")
            what = f"{task.dotted} has no on_stage_start, which would take it"
            hint = f"write def on_stage_start(self, *, {name}: float) in class {task.node.name}"
            walk.mistakes.report(path, what, node.key_place, hint)
        return node

    def _check_required(self, path: str, node: Node) -> None:
        """What the task must be told when a stage begins."""
        signature = _find_params(self.walk, self.given)
        for item in signature.parameters if signature is not None else ():
            if item.is_required and item.name not in self.params:
                what = f"missing; {signature.owner} requires it" if signature is not None else ""
                here = f"{path}.task.{item.name}"
                self.params.add(item.name)
                self.walk.mistakes.report(here, what, node.place, f"add {item.name}: ...")


def _find_task(walk: Walk, given: Collection[str]) -> Definition | None:
    factory = walk.factories.get("task")
    if "task" in given or factory is None or factory.file is None:
        return None
    return walk.registry.library.find_definition(factory.dotted)


def _may_have_error(walk: Walk, given: Collection[str]) -> bool:
    """Whether a task may monitor an error of its own."""
    task = _find_task(walk, given)
    if task is None:
        return True
    return find_method(task, "post_metric_to_err", walk.registry.library) is not False


def _find_params(walk: Walk, given: Collection[str]) -> Signature | None:
    """What the task takes when a stage begins, if its text shows that."""
    task = _find_task(walk, given)
    if task is None:
        return None
    found = method_signature(task, "on_stage_start", walk.registry.library)
    if found is None:
        return None
    kept = tuple(item for item in found.parameters if item.name not in ("run", "name"))
    return replace(found, parameters=kept)


def expand_optimizer(node: Node, registry: Registry) -> Node:
    """A section ``optim`` that code put together, with its defaults.

    Raises:
        ConfigError: Something in it is wrong.
    """
    walk = Walk(registry, Mistakes())
    own = own_signature(SECTIONS["optim"], registry.library)
    expanded = walk.spec("optim", node, "optimizer", own)
    if not walk.mistakes.problems:
        check_optimizer(walk, "optim", expanded)
    if walk.mistakes.problems:
        raise ConfigError(*walk.mistakes.problems)
    return expanded


def _unfilled(parameters: tuple[Parameter, ...]) -> tuple[Parameter, ...]:
    """The same, but what is left out stays left out."""
    return tuple(replace(item, default=Opaque("as before")) for item in parameters)


def _settle_length(walk: Walk, stages: Node, entries: dict[str, Node]) -> None:
    """Leave ``train.for`` to the stages, or report that it says something else."""
    train = entries.get("train")
    node = None if train is None else train.mapping.get("for")
    if train is None or node is None:
        return
    if node.layer in ("default", COMMAND_LINE):
        kept = {key: child for key, child in train.mapping.items() if key != "for"}
        entries["train"] = with_entries(train, kept)
        walk.defaults[:] = [one for one in walk.defaults if one.key != "train.for"]
        if node.layer == COMMAND_LINE:  # as --fast and --epochs, for each stage
            expanded = entries["stages"]
            shorter = (with_entries(one, {**one.mapping, "for": node}) for one in expanded.elements)
            entries["stages"] = replace(expanded, value=tuple(shorter))
        return
    total = _sum_lengths(stages)
    if total is None or str(total) != str(_length(node)):
        what = f"{show(node.value)} is not what the stages come to"
        what = what if total is None else f"{what}, which is {total}"
        walk.mistakes.report("train.for", what, node.place, "remove it: the stages say how long")


def _sum_lengths(stages: Node) -> Duration | None:
    lengths = [_length(stage.mapping.get("for")) for stage in stages.elements]
    units = {length.unit for length in lengths if length is not None}
    if len(units) != 1 or None in lengths:
        return None
    return Duration(sum(length.amount for length in lengths if length is not None), units.pop())


def _length(node: Node | None) -> Duration | None:
    try:
        return None if node is None else parse_duration(str(node.value))
    except ValueError:
        return None
