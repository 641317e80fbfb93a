"""Which parameters are trained with which options: rules in, groups of an optimizer out."""

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
"""The group of the parameters that no rule is about."""


@final
@dataclass(frozen=True, kw_only=True)
class GroupRule:
    """What holds for some parameters; a later rule has the last word on each of its keys."""

    key: str
    """Where it stands in the config, such as ``optim.groups.0``."""

    place: Place | None = None
    match: tuple[str, ...] = ()
    """Patterns of names, each of which must mean something."""

    module: tuple[str, ...] = ()
    """Classes of modules, each of which must occur; with ``match``, both must hold."""

    members: frozenset[str] | None = None
    """The very parameters, where code chose them."""

    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the optimizer; ``lr_mult`` is a factor of its ``lr``."""

    freeze: bool | None = None
    name: str = ""
    """What the group is called; made of the patterns when empty."""

    @property
    def label(self) -> str:
        """Its name, or a short one that reminds of what it matches."""
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
    """The groups of an optimizer, and what is left out of them on purpose."""

    groups: list[ParamGroup]
    """Each with its ``params``, its ``name``, the ``rule`` it comes from, and its options."""

    frozen: tuple[str, ...]
    """Parameters that rules freeze."""


@final
@dataclass(slots=True)
class _ParameterOptions:
    """What the rules make of one parameter."""

    options: dict[str, Any] = field(default_factory=dict)
    labels: list[str] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    is_frozen: bool = False

    def follow(self, rule: GroupRule) -> None:
        if _RATES & rule.options.keys():  # of which the last one counts
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
        options: Those of the optimizer, which hold where no rule says otherwise.
        no_decay: ``auto`` leaves the weight decay out for biases, vectors, norms and what
            modules declare, unless a rule says otherwise.
        layer_decay: Factor of the rate from each layer to the one below it.
        only: Names of the parameters it is about; all by default.
        more: Parameters beside the model's, by name.

    Raises:
        ConfigError: A rule matches nothing, or a factor has no rate to multiply.
    """
    selector = ParameterSelector(model, only=only, more=more)
    fates = {name: _ParameterOptions() for name in selector.parameters}
    problems = [problem for rule in rules for problem in find_rule_problems(rule, selector)]
    if problems:
        raise ConfigError(*problems)
    for rule in rules:
        for name in find_rule_parameters(rule, selector):
            fates[name].follow(rule)
    if no_decay == "auto" and options.get("weight_decay"):
        for name in find_no_decay(model, selector):
            if "weight_decay" not in fates[name].options:
                fates[name].follow(_NO_DECAY)
    if layer_decay is not None:
        layers = number_layers(model, fates)
        for name, fate in fates.items():
            fate.follow(_layer_rule(layers[name], max(layers.values()), layer_decay))
    trained = {name: fate for name, fate in fates.items() if not fate.is_frozen}
    return ParamGroups(
        groups=_build_groups(trained, selector.parameters, options),
        frozen=tuple(name for name, fate in fates.items() if fate.is_frozen),
    )


def _layer_rule(layer: int, top: int, decay: float) -> GroupRule:
    factor = {"layer_mult": decay ** (top - layer)}
    return GroupRule(key=f"layer_decay ^ {top - layer}", options=factor, name=f"layer{layer}")


def find_rule_parameters(rule: GroupRule, selector: ParameterSelector) -> list[str]:
    """The parameters that a rule is about, in the model's order."""
    if rule.members is not None:
        return [name for name in selector.parameters if name in rule.members]
    named = {name for pattern in rule.match for name in selector.by_name(pattern)}
    classed = {name for kind in rule.module for name in selector.by_class(kind)}
    found = named & classed if rule.match and rule.module else named | classed
    return [name for name in selector.parameters if name in found]


def find_rule_problems(rule: GroupRule, selector: ParameterSelector) -> Iterator[Problem]:
    """What is wrong with a rule that matches nothing, or one of whose patterns does not."""
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
    fates: Mapping[str, _ParameterOptions],
    parameters: Mapping[str, nn.Parameter],
    options: Mapping[str, Any],
) -> list[ParamGroup]:
    groups: dict[tuple[object, ...], ParamGroup] = {}
    for name, fate in fates.items():
        if not parameters[name].requires_grad:
            continue
        own = _resolve(fate.options, options)
        key = (*fate.labels, *sorted((option, repr(value)) for option, value in own.items()))
        if key not in groups:
            title = _free_name("+".join(fate.labels) or REST_GROUP, groups.values())
            rule = ", ".join(dict.fromkeys(fate.rules))
            groups[key] = {"params": [], "name": title, "rule": rule, **own}
        groups[key]["params"].append(parameters[name])
    return list(groups.values())


def _resolve(own: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Options for torch, which knows rates and no factors of them."""
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
