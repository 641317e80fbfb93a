"""Build the parameter groups of an optimizer from rules."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from epochal.engine.optim.layer_decay import number_layers
from epochal.engine.optim.parameter_selector import ParameterSelector
from epochal.engine.optim.weight_decay_groups import find_no_decay
from epochal.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from torch import nn

    from epochal.errors import Place

    ParamGroup = dict[str, Any]  # torch's own: options by name

_WILD, _DOTS = re.compile(r"[*?!\[\]]"), re.compile(r"\.+")

_RATES = frozenset({"lr", "lr_mult"})

REST_GROUP = "rest"
"""The group of the parameters that no rule matches."""


@final
@dataclass(frozen=True, kw_only=True)
class GroupRule:
    """Options of some parameters; of two rules with the same key, the later one counts."""

    key: str
    """Its key in the config, such as ``optim.groups.0``."""

    place: Place | None = None
    match: tuple[str, ...] = ()
    """Patterns of names, each of which must match a parameter."""

    module: tuple[str, ...] = ()
    """Classes of modules, each of which must occur; with ``match``, both must hold."""

    members: frozenset[str] | None = None
    """Names of the parameters, if code chose them."""

    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the optimizer; ``lr_mult`` is a factor of its ``lr``."""

    freeze: bool | None = None
    name: str = ""
    """The name of the group; made of the patterns if empty."""

    @property
    def label(self) -> str:
        """Its name, or a short form of what it matches."""
        words = [_WILD.sub("", text) for text in (*self.match, *self.module)]
        return self.name or "_".join(_DOTS.sub(".", word).strip(".") or "all" for word in words)

    @property
    def description(self) -> str:
        """What it matches, as it would be written."""
        parts = [f"match {pattern}" for pattern in self.match]
        parts += [f"module {kind}" for kind in self.module]
        return " ".join(parts) or self.key


_NO_DECAY = GroupRule(key="no_decay auto", options={"weight_decay": 0.0}, name="no_decay")


@final
@dataclass(frozen=True, kw_only=True)
class ParamGroups:
    """The groups of an optimizer, and the frozen parameters."""

    groups: list[ParamGroup]
    """Each with its ``params``, its ``name``, the ``rule`` it comes from, and its options."""

    frozen: tuple[str, ...]
    """Parameters that rules freeze."""


@final
@dataclass(slots=True)
class _ParameterOptions:
    """The options of one parameter after all rules."""

    options: dict[str, Any] = field(default_factory=dict)
    labels: list[str] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    is_frozen: bool = False

    def apply_rule(self, rule: GroupRule) -> None:
        if _RATES & rule.options.keys():  # the last one counts
            self.options = {k: v for k, v in self.options.items() if k not in _RATES}
        self.options |= rule.options
        if rule.freeze is not None:
            self.is_frozen = rule.freeze
        if rule.options or rule.name:
            self.labels.append(rule.label)
            self.rules.append(rule.description)


def group_parameters(
    model: nn.Module,
    rules: Sequence[GroupRule],
    *,
    options: Mapping[str, Any],
    no_decay: str | None = None,
    layer_decay: float | None = None,
    only: Collection[str] | None = None,
    more: Mapping[str, nn.Parameter] | None = None,
) -> ParamGroups:
    """The trainable parameters of a model in groups of equal options, each in exactly one.

    Args:
        model: Parameters that need no gradient are in no group.
        rules: In order; later ones refine earlier ones key by key.
        options: Those of the optimizer, for parameters without a rule.
        no_decay: ``auto`` sets no weight decay for biases, vectors, norms and what modules
            declare, unless a rule sets one.
        layer_decay: Factor of the rate from each layer to the one below it.
        only: Names of the parameters to group; all by default.
        more: Parameters beside the model's, by name.

    Raises:
        ConfigError: A rule matches nothing, or a factor has no rate to multiply.
    """
    selector = ParameterSelector(model, only=only, more=more)
    results = {name: _ParameterOptions() for name in selector.parameters}
    problems = [problem for rule in rules for problem in find_rule_problems(rule, selector)]
    if problems:
        raise ConfigError(*problems)
    for rule in rules:
        for name in find_rule_parameters(rule, selector):
            results[name].apply_rule(rule)
    if no_decay == "auto" and options.get("weight_decay"):
        for name in find_no_decay(model, selector):
            if "weight_decay" not in results[name].options:
                results[name].apply_rule(_NO_DECAY)
    if layer_decay is not None:
        layers = number_layers(model, results)
        for name, result in results.items():
            result.apply_rule(_layer_rule(layers[name], max(layers.values()), layer_decay))
    trained = {name: result for name, result in results.items() if not result.is_frozen}
    return ParamGroups(
        groups=_build_groups(trained, selector.parameters, options),
        frozen=tuple(name for name, result in results.items() if result.is_frozen),
    )


def _layer_rule(layer: int, top: int, decay: float) -> GroupRule:
    factor = {"layer_mult": decay ** (top - layer)}
    return GroupRule(key=f"layer_decay ^ {top - layer}", options=factor, name=f"layer{layer}")


def find_rule_parameters(rule: GroupRule, selector: ParameterSelector) -> list[str]:
    """The parameters that a rule matches, in the model's order."""
    if rule.members is not None:
        return [name for name in selector.parameters if name in rule.members]
    named = {name for pattern in rule.match for name in selector.by_name(pattern)}
    classed = {name for kind in rule.module for name in selector.by_class(kind)}
    found = named & classed if rule.match and rule.module else named | classed
    return [name for name in selector.parameters if name in found]


def find_rule_problems(rule: GroupRule, selector: ParameterSelector) -> Iterator[Problem]:
    """Problems of a rule that matches nothing, or one of whose patterns matches nothing."""
    missed = False
    for pattern in rule.match:
        if not selector.by_name(pattern):
            missed = True
            what = f"{pattern!r} matches no parameter"
            yield Problem(rule.key, what, rule.place, selector.suggest_names(pattern))
    for kind in rule.module:
        if not selector.by_class(kind):
            missed = True
            what = f"no parameter is in a module of class {kind!r}"
            yield Problem(rule.key, what, rule.place, selector.suggest_classes(kind))
    if rule.members is None and not missed and not find_rule_parameters(rule, selector):
        what = "no parameter has both such a name and such a module"
        hint = "write two rules, or let one of the patterns mean more"
        yield Problem(rule.key, what, rule.place, hint)


def _build_groups(
    results: Mapping[str, _ParameterOptions],
    parameters: Mapping[str, nn.Parameter],
    options: Mapping[str, Any],
) -> list[ParamGroup]:
    groups: dict[tuple[object, ...], ParamGroup] = {}
    for name, result in results.items():
        if not parameters[name].requires_grad:
            continue
        own = _resolve(result.options, options)
        key = (*result.labels, *sorted((option, repr(value)) for option, value in own.items()))
        if key not in groups:
            title = _free_name("+".join(result.labels) or REST_GROUP, groups.values())
            rule = ", ".join(dict.fromkeys(result.rules))
            groups[key] = {"params": [], "name": title, "rule": rule, **own}
        groups[key]["params"].append(parameters[name])
    return list(groups.values())


def _resolve(own: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Options for torch, with factors of rates multiplied."""
    factors = [own[name] for name in ("lr_mult", "layer_mult") if name in own]
    resolved = {name: value for name, value in own.items() if not name.endswith("_mult")}
    rate = own.get("lr", options.get("lr"))
    if factors and not isinstance(rate, int | float):
        what = f"there is no rate to multiply, but {rate!r}"
        raise ConfigError(Problem("optim.lr", what, hint="write a number, such as lr: 1e-3"))
    if factors:
        resolved["lr"] = math.prod(factors, start=rate)
    return resolved


def _free_name(name: str, groups: Iterable[ParamGroup]) -> str:
    taken = {group["name"] for group in groups}
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    return next(one for one in itertools.chain([name], numbered) if one not in taken)
