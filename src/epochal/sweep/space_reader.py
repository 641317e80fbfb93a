"""Reads the search space of a sweep: choices, ranges, and the ranges of a W&B sweep file."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, final

from epochal.check.values.unknown_keys import describe_unknown
from epochal.config.node import Node
from epochal.errors import suggest
from epochal.sweep.space import NormalRange, Space, SweepParameter, ValueChoice, ValueRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from epochal.sweep.sampling import Method
    from epochal.sweep.space import Distribution
    from epochal.sweep.value_reader import ValueReader

_RANGE_KEYS = (
    *("min", "max", "log", "step", "points", "values", "value", "when", "distribution"),
    *("q", "mu", "sigma", "probabilities", "parameters"),
)
_UNIFORM = {
    "uniform": (False, False),
    "q_uniform": (False, False),
    "int_uniform": (False, True),
    "log_uniform_values": (True, False),
    "q_log_uniform_values": (True, False),
    "log_uniform": (True, False),
    "q_log_uniform": (True, False),
}
_NORMAL = {"normal": False, "q_normal": False, "log_normal": True, "q_log_normal": True}
_DISTRIBUTIONS = (*_UNIFORM, *_NORMAL, "categorical", "constant", "inv_log_uniform_values")


@final
class SpaceReader:
    """Reads ``sweep.space``.

    Args:
        values: Takes every mistake.
        expanded: The config with all defaults filled in.
    """

    def __init__(self, values: ValueReader, expanded: Node) -> None:
        self._values = values
        self._expanded = expanded

    def read(self, node: Node | None, method: Method) -> Space:
        """The space; ``method`` decides which ranges it may have."""
        if node is None or not node.mapping:
            hint = "write for example space: {optim.lr: {min: 1e-4, max: 1e-1, log: true}}"
            place = None if node is None else node.place
            self._values.report("sweep.space", "there is nothing to search", place, hint)
            return Space()
        found: dict[str, SweepParameter] = {}
        for key, child in self._iter_parameters(node, ""):
            parameter = self._read_parameter(key, child)
            if parameter is None:
                continue
            if method == "grid" and not parameter.values.grid():
                what = "a grid needs to know which values of the range"
                self._values.report(f"sweep.space.{key}", what, child.place, "add step: or points:")
            found[key] = parameter
        for parameter in found.values():
            self._check_when(parameter, found)
        ordered = self._order(found)
        fixed = {
            name: (self._expanded.find(name) or Node(None)).value
            for one in ordered
            for name in one.when
            if name not in found
        }
        return Space(tuple(ordered), MappingProxyType(fixed))

    def _iter_parameters(self, node: Node, prefix: str) -> Iterable[tuple[str, Node]]:
        """Every dotted key with its values; keys may be nested, also below ``parameters``."""
        for name, child in node.mapping.items():
            key = f"{prefix}.{name}" if prefix else name
            nested = child.mapping.get("parameters", child)
            if nested is not child or self._is_nested(key, child):
                yield from self._iter_parameters(nested, key)
            else:
                yield key, child

    def _is_nested(self, key: str, node: Node) -> bool:
        """Whether a mapping has further keys, instead of saying which values a key takes."""
        if not node.is_mapping or any(name in _RANGE_KEYS for name in node.mapping):
            return False
        current = self._expanded.find(key)
        return bool(node.mapping) and (current is None or current.is_mapping)

    def _check_when(self, parameter: SweepParameter, found: Mapping[str, SweepParameter]) -> None:
        """Report a condition that no trial can meet: the parameter would never be set."""
        path = f"sweep.space.{parameter.key}.when"
        for name, accepted in parameter.when.items():
            current = self._expanded.find(name)
            if name in found:
                choice = found[name].values
                possible = choice.values if isinstance(choice, ValueChoice) else accepted
            elif current is not None:
                possible = (current.to_plain(),)
            else:
                known = {*found, *(key for key, _ in self._expanded.iter_leaves())}
                what, hint = f"there is no key {name!r}", suggest(name, known)
                self._values.report(path, what, parameter.place, hint)
                continue
            if not any(value in possible for value in accepted):
                what = f"never holds: {name} is {', '.join(map(repr, possible[:5]))}"
                hint = "change the condition" + ("" if name in found else f", or search {name} too")
                self._values.report(path, what, parameter.place, hint)

    def _order(self, found: dict[str, SweepParameter]) -> list[SweepParameter]:
        """Parameters after those that their conditions read."""
        ordered: dict[str, SweepParameter] = {}
        waiting = list(found.values())
        while waiting:
            ready = [
                one for one in waiting if all(k in ordered or k not in found for k in one.when)
            ]
            if not ready:
                names = ", ".join(one.key for one in waiting)
                what = f"the conditions of {names} depend on each other"
                self._values.report("sweep.space", what, waiting[0].place, "remove one `when`")
                return list(found.values())
            ordered |= {one.key: one for one in ready}
            waiting = [one for one in waiting if one.key not in ordered]
        return list(ordered.values())

    def _read_parameter(self, key: str, node: Node) -> SweepParameter | None:
        place = node.key_place if node.key_place.name else node.place
        values: Distribution | None
        if node.is_list:
            values = self._read_choice(key, node, None)
        elif node.is_mapping:
            values = self._read_mapping(key, node)
        else:
            values = ValueChoice((node.value,))
        if values is None:
            return None
        return SweepParameter(key, values, self._read_when(key, node.find("when")), place)

    def _read_choice(self, key: str, node: Node, probabilities: Node | None) -> ValueChoice | None:
        values = tuple(one.to_plain() for one in node.elements)
        if not values:
            self._values.report(
                f"sweep.space.{key}", "expected values, got an empty list", node.place
            )
            return None
        weights: tuple[float, ...] = ()
        if probabilities is not None:
            weights = tuple(
                float(one.value)
                for one in probabilities.elements
                if isinstance(one.value, int | float) and one.value >= 0
            )
            if len(weights) != len(values) or sum(weights) <= 0:
                what = f"expected {len(values)} probabilities"
                self._values.report(f"sweep.space.{key}.probabilities", what, probabilities.place)
                return None
        return ValueChoice(values, weights)

    def _read_mapping(self, key: str, node: Node) -> Distribution | None:
        path, entries = f"sweep.space.{key}", node.mapping
        for name, child in entries.items():
            if name not in _RANGE_KEYS:
                hint = suggest(name, _RANGE_KEYS)
                self._values.report(f"{path}.{name}", describe_unknown(name), child.key_place, hint)
                return None
        if "values" in entries:
            return self._read_choice(key, entries["values"], entries.get("probabilities"))
        if "value" in entries:
            return ValueChoice((entries["value"].to_plain(),))
        kind = str(entries["distribution"].value) if "distribution" in entries else ""
        if kind and (kind not in _DISTRIBUTIONS or kind == "inv_log_uniform_values"):
            hint = suggest(kind, (*_UNIFORM, *_NORMAL))
            self._values.report(
                f"{path}.distribution", f"unknown distribution {kind!r}", node.place, hint
            )
            return None
        step = self._values.read_number(entries.get("step", entries.get("q")), f"{path}.step", None)
        if step is not None and step <= 0:
            self._values.report(f"{path}.step", f"must be above 0, got {step:g}", node.place)
            return None
        if kind in _NORMAL:
            mean = self._values.read_number(entries.get("mu"), f"{path}.mu", 0.0)
            deviation = self._values.read_number(entries.get("sigma"), f"{path}.sigma", 1.0)
            if not deviation or deviation <= 0:
                self._values.report(f"{path}.sigma", "must be above 0", node.place)
                return None
            return NormalRange(mean or 0.0, deviation, _NORMAL[kind], step)
        return self._read_range(key, node, kind, step)

    def _read_range(self, key: str, node: Node, kind: str, step: float | None) -> ValueRange | None:
        path, entries = f"sweep.space.{key}", node.mapping
        ends = [
            self._values.read_number(entries.get(name), f"{path}.{name}", None)
            for name in ("min", "max")
        ]
        low, high = ends
        if low is None or high is None:
            missing = "min" if low is None else "max"
            hint = "write {min: 1e-4, max: 1e-1, log: true}, or a list of values"
            self._values.report(path, f"{missing!r} is missing", node.place, hint)
            return None
        is_log, is_integer = _UNIFORM.get(kind, (False, False))
        if kind in ("log_uniform", "q_log_uniform"):  # W&B gives exponents here
            low, high = math.exp(low), math.exp(high)
        is_log = is_log or (entries["log"].value is True if "log" in entries else False)
        is_whole = all(isinstance(entries[name].value, int) for name in ("min", "max"))
        is_whole = is_whole and (step is None or step == int(step))
        current = (self._expanded.find(key) or Node(None)).value
        if not kind:
            is_integer = is_whole and not isinstance(current, float)
        points = self._values.read_count(entries.get("points"), f"{path}.points", None, least=2)
        if not math.isfinite(low) or not math.isfinite(high) or low >= high:
            self._values.report(
                path, f"min must be below max, got {low:g} and {high:g}", node.place
            )
            return None
        if is_log and low <= 0:
            what = f"min must be above 0 for a logarithmic range, got {low:g}"
            self._values.report(f"{path}.min", what, entries["min"].place)
            return None
        if is_log and step is not None:
            self._values.report(f"{path}.step", "a logarithmic range has no step", node.place)
            return None
        return ValueRange(low, high, is_log, step, is_integer, points)

    def _read_when(self, key: str, node: Node | None) -> Mapping[str, tuple[Any, ...]]:
        if node is None:
            return MappingProxyType({})
        if not node.is_mapping:
            hint = "write when: {optim.type: sgd}"
            self._values.report(f"sweep.space.{key}.when", "expected a mapping", node.place, hint)
            return MappingProxyType({})
        return MappingProxyType(
            {
                name: tuple(one.value for one in child.elements)
                if child.is_list
                else (child.value,)
                for name, child in _iter_conditions(node)
            }
        )


def _iter_conditions(node: Node, prefix: str = "") -> Iterator[tuple[str, Node]]:
    """Every dotted key of a condition with what it accepts; keys may be nested."""
    for name, child in node.mapping.items():
        key = f"{prefix}.{name}" if prefix else name
        if child.is_mapping:
            yield from _iter_conditions(child, key)
        else:
            yield key, child
