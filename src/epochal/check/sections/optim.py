"""Checks the section ``optim``: rules for parameter groups, numbers, and several optimizers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from epochal.check.sections.monitor import loss_names
from epochal.check.sections.section_shapes import expand_section, has_members
from epochal.check.sections.sections import SECTIONS
from epochal.check.signatures.parameters import MISSING, Parameter, Signature
from epochal.check.signatures.signature import read_signature
from epochal.check.values.checker import ConfigChecker
from epochal.check.values.unknown_keys import describe_unknown, suggest_known
from epochal.config.node import Node
from epochal.errors import ConfigError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from epochal.registry import Registry
    from epochal.registry.parsed_module import Definition

_NAME = re.compile(r"[A-Za-z0-9_.+-]+")
_NAME_HINT = "use letters, digits and any of _ . + -"
_RULE = (
    Parameter("match", "str | list[str]", MISSING),
    Parameter("module", "str | list[str]", MISSING),
    Parameter("name", "str", MISSING),
    Parameter("freeze", "bool", MISSING),
    Parameter("lr_mult", "float", MISSING),
)
KERNEL_OPTIONS = ("fused", "foreach", "capturable", "differentiable")
"""Options of the whole optimizer: torch chooses its kernels by them."""

_NOT_NEGATIVE = ("lr", "lr_mult", "weight_decay")
_EXAMPLE = 'write for example {match: "*.bias", weight_decay: 0}'


def expand_optimizer(node: Node, registry: Registry) -> Node:
    """A section ``optim`` that code assembled, with its defaults; ConfigError for mistakes."""
    checker = ConfigChecker(registry)
    expanded = expand_section(checker, SECTIONS["optim"], node)
    if not checker.problems:
        check_optim(checker, Node({"optim": expanded}))
    if checker.problems:
        raise ConfigError(*checker.problems)
    return expanded


def check_optim(checker: ConfigChecker, root: Node) -> None:
    """Report mistakes in ``optim`` that the types of its values do not show."""
    node = root.mapping.get("optim")
    if node is None:
        return
    if not has_members(SECTIONS["optim"], node):
        check_optimizer(checker, "optim", node)
        return
    members = {name: child for name, child in node.mapping.items() if child.is_mapping}
    for name, child in members.items():
        path = f"optim.{name}"
        if "." in name or _is_bad_name(name):
            what = f"{name!r} cannot be the name of an optimizer"
            checker.report(path, what, child.key_place, "use letters, digits, _ and -")
        check_optimizer(checker, path, child)
    _check_members(checker, node, members)


def _check_members(checker: ConfigChecker, node: Node, members: Mapping[str, Node]) -> None:
    """Report optimizers that cannot share a model, or steps in which none of them acts."""
    greedy = [name for name, child in members.items() if not child.get("match").to_plain()]
    for name in greedy[1:]:
        what = f"{name!r} and {greedy[0]!r} both train the remaining parameters: only one may"
        key_place = members[name].key_place
        checker.report(f"optim.{name}", what, key_place, 'add match: "PATTERN"')
    periods = [child.get("every").value for child in members.values()]
    if all(isinstance(every, int) and every > 1 for every in periods):
        what = "in some steps no optimizer acts"
        checker.report("optim", what, node.key_place, "set every: 1 for one of them")


def check_optimizer_losses(checker: ConfigChecker, root: Node, task: Definition | None) -> None:
    """Report losses of several optimizers that nothing computes."""
    node, names = root.mapping.get("optim"), loss_names(task, root, checker.finder)
    if node is None or not names or not has_members(SECTIONS["optim"], node):
        return
    for name, child in node.mapping.items():
        loss = child.get("loss")
        if not isinstance(loss.value, str) or loss.value in names:
            continue
        place = child.key_place if loss.layer == "default" else loss.place
        what, hint = f"nothing computes the loss {loss.value!r}", suggest_known(loss.value, names)
        checker.report(f"optim.{name}.loss", what, place, hint)


def check_optimizer(checker: ConfigChecker, path: str, node: Node) -> None:
    """Report the mistakes of the optimizer whose spec is at ``path``."""
    factory = checker.factories.get(path)
    if factory is None:
        return
    signature = read_signature(factory, checker.finder)
    _check_numbers(checker, path, node)
    for key, option in (("no_decay", "weight_decay"), ("layer_decay", "lr")):
        child = node.get(key)
        if child.value is not None and not signature.open and signature.get(option) is None:
            what = f"needs {option!r}, which {signature.owner} does not take"
            checker.report(f"{path}.{key}", what, child.key_place, f"remove {key}")
    names: dict[str, str] = {}
    for here, rule in _rules(path, node):
        _check_rule(checker, here, rule, signature)
        name = rule.get("name")
        if isinstance(name.value, str):
            _check_name(checker, f"{here}.name", name, names)


def _rules(path: str, node: Node) -> Iterator[tuple[str, Node]]:
    for index, rule in enumerate(node.get("groups").elements):
        if rule.is_mapping:
            yield f"{path}.groups.{index}", rule


def _check_numbers(checker: ConfigChecker, path: str, node: Node) -> None:
    for key in _NOT_NEGATIVE:
        child = node.get(key)
        number = child.value
        if isinstance(number, int | float) and not isinstance(number, bool) and number < 0:
            what = f"must be at least 0, got {number!r}"
            checker.report(f"{path}.{key}", what, child.place, "write a positive number")


def _check_rule(checker: ConfigChecker, path: str, rule: Node, signature: Signature) -> None:
    known = {item.name: (item, "section 'optim'") for item in _RULE}
    known |= {
        item.name: (item, signature.owner)
        for item in signature.parameters
        if item.name not in KERNEL_OPTIONS
    }
    meant = set(rule.mapping)
    for key, child in rule.mapping.items():
        here = f"{path}.{key}"
        if key in known:
            checker.value(here, child, *known[key])
        elif key in KERNEL_OPTIONS:
            what = f"{key!r} applies to the whole optimizer, not to a group"
            checker.report(here, what, child.key_place, "write it in optim itself")
        elif not signature.open:
            close = nearest(key, known)
            hint = suggest_known(key, known)
            checker.report(here, describe_unknown(key, "a rule"), child.key_place, hint)
            meant |= {close} if close else set()
    _check_numbers(checker, path, rule)
    _check_sense(checker, path, rule, meant)


def _check_sense(checker: ConfigChecker, path: str, rule: Node, meant: set[str]) -> None:
    """Report a rule that selects nothing, changes nothing, or contradicts itself.

    ``meant`` also has the keys that were probably misspelt.
    """
    keys = rule.mapping
    if not meant & {"match", "module"}:
        what = "the rule selects no parameters"
        checker.report(path, what, rule.place, "add match: PATTERN, or module: CLASS")
    elif not keys.keys() - {"match", "module"}:
        checker.report(path, "the rule changes nothing", rule.place, _EXAMPLE)
    if "lr" in keys and "lr_mult" in keys:
        what = "a rule has lr or lr_mult, not both"
        hint = "lr_mult is a factor of optim.lr; remove one of them"
        checker.report(f"{path}.lr_mult", what, keys["lr_mult"].key_place, hint)


def _check_name(checker: ConfigChecker, path: str, node: Node, seen: dict[str, str]) -> None:
    name = str(node.value)
    if _is_bad_name(name):
        what = f"{name!r} cannot be the name of a group"
        checker.report(path, what, node.place, _NAME_HINT)
    elif name in seen:
        what = f"two rules are called {name!r}, the other one is {seen[name]}"
        checker.report(path, what, node.place, "give one of them another name")
    seen.setdefault(name, path.removesuffix(".name"))


def _is_bad_name(name: str) -> bool:
    return _NAME.fullmatch(name) is None
