"""Builds the parameter groups of an optimizer from rules, layer decay and weight decay."""

from __future__ import annotations

import itertools
import logging
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from epochal.engine.optim.select_parameters import (
    ParameterSelector,
    is_uninitialized,
    matches_pattern,
)
from epochal.errors import ConfigError, Problem, TaskError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from epochal.errors import Place

    ParamGroup = dict[str, Any]  # torch's own: options by name

logger = logging.getLogger(__name__)

_WILD, _DOTS = re.compile(r"[*?!\[\]]"), re.compile(r"\.+")

_RATES = frozenset({"lr", "lr_mult"})

REST_GROUP = "rest"
"""The group of the parameters that no rule matches."""

_NORMS = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


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

    Later rules refine earlier ones key by key. ``no_decay: auto`` sets no weight decay for biases,
    vectors, norms and what modules declare, unless a rule sets one; ``layer_decay`` is the factor
    of the rate from each layer to the one below it. ``only`` names the parameters to group, and
    ``more`` are parameters beside the model's.
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
        hint = "write two rules, or use a wider pattern"
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
            title = _make_unique_name("+".join(result.labels) or REST_GROUP, groups.values())
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


def _make_unique_name(name: str, groups: Iterable[ParamGroup]) -> str:
    taken = {group["name"] for group in groups}
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    return next(one for one in itertools.chain([name], numbered) if one not in taken)


def find_no_decay(model: nn.Module, selector: ParameterSelector) -> set[str]:
    """The parameters that are biases or vectors, are in norms, or that modules declare.

    A module declares them by a method ``no_decay()``, which returns names or patterns of its
    parameters and of those in its children.
    """
    found = {name for name, one in selector.parameters.items() if _is_bias_or_vector(name, one)}
    for prefix, module in model.named_modules():
        if isinstance(module, _NORMS):
            found |= selector.by_name(prefix) if prefix else set(selector.parameters)
        for name in _iter_declared_no_decay(prefix, module):
            found |= selector.by_name(name)
    return found


def _is_bias_or_vector(name: str, parameter: nn.Parameter) -> bool:
    last = name.rpartition(".")[2]
    is_bias = last == "bias" or last.endswith("_bias")
    return is_bias or (not is_uninitialized(parameter) and parameter.ndim <= 1)


def _iter_declared_no_decay(prefix: str, module: nn.Module) -> Iterator[str]:
    declare: Any = getattr(module, "no_decay", None)  # a method of the user
    if not callable(declare) or isinstance(declare, nn.Module):
        return
    own = [name for name, _ in module.named_parameters(remove_duplicate=False)]
    for pattern in declare():
        if not any(matches_pattern(name, pattern) for name in own):
            where = f"{type(module).__name__}.no_decay" + (f" of {prefix}" if prefix else "")
            logger.warning("%s names %r, which is not one of its parameters", where, pattern)
        yield f"{prefix}.{pattern}" if prefix else pattern


def number_layers(model: nn.Module, names: Iterable[str]) -> dict[str, int]:
    """The number of each parameter's layer; the top layer has the largest.

    A model may have ``layer_of(name)``, which gives the number, or None for the top. Otherwise
    the children of the longest ``ModuleList`` or ``Sequential`` that hold parameters count from
    1; what the model has before them is layer 0, and what comes after them the top.
    """
    names = list(names)
    own: Any = getattr(model, "layer_of", None)
    numbers = _ask_layer_of(own, model, names) if callable(own) else _count_layers(model, names)
    top = max((number for number in numbers.values() if number is not None), default=0)
    return {name: top if number is None else number for name, number in numbers.items()}


def _ask_layer_of(layer_of: Any, model: nn.Module, names: list[str]) -> dict[str, int | None]:  # noqa: ANN401 - a method of the user
    numbers = {name: layer_of(name) for name in names}
    for name, number in numbers.items():
        if number is not None and (not isinstance(number, int) or number < 0):
            raise TaskError(
                f"{type(model).__name__}.layer_of: gave {number!r} for {name!r}\n"
                "  return the number of the layer, 0 at the input, or None for the top"
            )
    return numbers


def _count_layers(model: nn.Module, names: list[str]) -> dict[str, int | None]:
    prefix, children = _longest_list(model, names)
    if len(children) < 2:
        what = f"{type(model).__name__} has no ModuleList or Sequential of several layers"
        hint = "give the model a method layer_of(name) that returns the number of the layer"
        raise ConfigError(Problem("optim.layer_decay", what, hint=hint))
    starts = {f"{prefix}{child}.": number + 1 for number, child in enumerate(children)}
    numbers: dict[str, int | None] = {}
    is_before = True
    for name in names:
        inside = next((n for start, n in starts.items() if name.startswith(start)), None)
        is_before = is_before and inside is None
        numbers[name] = inside if inside is not None else 0 if is_before else len(children) + 1
    return numbers


def _longest_list(model: nn.Module, names: list[str]) -> tuple[str, list[str]]:
    """The prefix of the longest list of layers, and its children that hold parameters."""
    best: tuple[str, list[str]] = ("", [])
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList | nn.Sequential):
            prefix = f"{name}." if name else ""
            starts = {key: f"{prefix}{key}." for key, _ in module.named_children()}
            children = [k for k, start in starts.items() if any(n.startswith(start) for n in names)]
            if len(children) > len(best[1]):
                best = (prefix, children)
    return best
