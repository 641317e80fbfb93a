"""Reads the section ``sweep`` of a config, in our words or in those of a W&B sweep file."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, final, get_args

from typing_extensions import override

from epochal.config.condition import Condition, parse_condition
from epochal.config.node import Node
from epochal.errors import ConfigError, Place, Problem, suggest
from epochal.sweep.constraints import ValueConstraint, parse_constraint
from epochal.sweep.pruning import Pruner, PrunerName
from epochal.sweep.sampling import Method
from epochal.sweep.space import NormalRange, Space, SweepParameter, ValueChoice, ValueRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from epochal.sweep.space import Distribution

_KEYS = (
    *("name", "method", "trials", "objective", "repeats", "prune", "space", "constraints"),
    *("seed", "max_failures", "target"),
)
_WANDB_KEYS = {
    "parameters": "space",
    "run_cap": "trials",
    "early_terminate": "prune",
    "metric": "objective",
}
_WANDB_IGNORED = ("program", "command", "description", "project", "entity", "controller")
_METHODS: Mapping[str, Method] = {
    **{method: method for method in get_args(Method)},
    "bayes": "tpe",
    "qmc": "quasi-random",
    "quasirandom": "quasi-random",
    "sobol": "quasi-random",
    "cmaes": "cma-es",
}
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
_DEFAULT_TRIALS = 20


@final
@dataclass(frozen=True, slots=True)
class Objective:
    """A metric that trials are judged by."""

    metric: str
    mode: Literal["min", "max"]
    at: Literal["best", "last"] = "best"
    """Which of its values counts."""

    def is_better(self, value: float, other: float) -> bool:
        """Whether one value is better than another; NaN never is."""
        if math.isnan(value) or math.isnan(other):
            return math.isnan(other) and not math.isnan(value)
        return value < other if self.mode == "min" else value > other

    @override
    def __str__(self) -> str:
        return f"{'-' if self.mode == 'min' else '+'}{self.metric}"


@final
@dataclass(frozen=True, kw_only=True)
class SweepSettings:
    """What a sweep searches, and how."""

    space: Space
    objectives: tuple[Objective, ...]
    method: Method = "tpe"
    num_trials: int | None = _DEFAULT_TRIALS
    """None: until the space is used up, for a grid."""

    repeats: int = 1
    """Runs of each trial with different seeds; the mean counts."""

    pruner: Pruner | None = None
    constraints: tuple[ValueConstraint, ...] = ()
    metric_constraints: tuple[Condition, ...] = ()
    seed: int = 0
    """Of the search itself."""

    base_seed: int = 0
    """The seed of the config; repeats count up from it."""

    name: str = ""
    max_failures: int = 5
    """The sweep stops after this many failed trials in a row."""

    target: float | None = None
    """The sweep stops when a trial reaches this value of the first objective."""

    notes: tuple[str, ...] = ()
    """What was read in another way than written."""

    def reaches_target(self, value: float) -> bool:
        """Whether a value of the first objective is at least as good as the target."""
        target = self.target
        return target is not None and not self.objectives[0].is_better(target, value)

    def is_allowed(self, values: Mapping[str, Any]) -> bool:
        """Whether values meet the constraints on values."""
        known = {**self.space.fixed, **values}
        return all(constraint.holds(known) for constraint in self.constraints)


def read_settings(sweep: Node | None, expanded: Node) -> SweepSettings:
    """The settings of a sweep.

    Args:
        sweep: The section, as written.
        expanded: The config with all defaults filled in.

    Raises:
        ConfigError: With every mistake in it.
    """
    if sweep is None or not sweep.is_mapping:
        example = "sweep: {space: {optim.lr: {min: 1e-4, max: 1e-1, log: true}}, trials: 20}"
        what = "the config has no search space" if sweep is None else "expected a mapping"
        raise ConfigError(Problem("sweep", what, hint=f"write for example {example}"))
    reader = _Reader(expanded)
    settings = reader.read(sweep)
    if reader.problems or settings is None:
        raise ConfigError(*reader.problems)
    return settings


@final
class _Reader:
    """Collects every mistake of the section."""

    def __init__(self, expanded: Node) -> None:
        self.problems: list[Problem] = []
        self.notes: list[str] = []
        self._expanded = expanded

    def read(self, sweep: Node) -> SweepSettings | None:
        entries = self._read_names(sweep)
        method = self._read_method(entries.get("method"))
        space = self._read_space(entries.get("space"), method)
        constraints, conditions = self._read_constraints(entries.get("constraints"), space)
        read = {key for one in constraints for key in one.keys}
        read -= {one.key for one in space.parameters}
        fixed = {key: (self._expanded.find(key) or Node(None)).value for key in sorted(read)}
        space = replace(space, fixed=MappingProxyType({**space.fixed, **fixed}))
        objectives, target = self._read_objectives(entries.get("objective"))
        default = None if method == "grid" else _DEFAULT_TRIALS
        trials = self._read_count(entries, "trials", default, least=1)
        settings = SweepSettings(
            space=space,
            objectives=objectives,
            method=method,
            num_trials=trials,
            repeats=self._read_count(entries, "repeats", 1, least=1) or 1,
            pruner=self._read_pruner(entries.get("prune")),
            constraints=constraints,
            metric_constraints=conditions,
            seed=self._read_count(entries, "seed", 0, least=0) or 0,
            base_seed=_to_int((self._expanded.find("seed") or Node(0)).value),
            name=str(entries["name"].value or "") if "name" in entries else "",
            max_failures=self._read_count(entries, "max_failures", 5, least=1) or 5,
            target=self._read_number(entries.get("target"), "sweep.target", target),
            notes=tuple(self.notes),
        )
        if settings.repeats > 1 and any(one.key == "seed" for one in space.parameters):
            what = "the seed is set by repeats, and cannot be searched as well"
            self._report("sweep.space.seed", what, entries["space"].place, "remove one of both")
        if settings.pruner is not None and len(objectives) > 1:
            what = "trials cannot be stopped early with several objectives"
            self._report("sweep.prune", what, entries["prune"].place, "remove one of both")
        if settings.method in ("gp", "cma-es") and len(objectives) > 1:
            what = f"{settings.method!r} takes one objective"
            self._report("sweep.method", what, sweep.place, "write method: tpe")
        if settings.method == "cma-es" and conditions:
            what = "'cma-es' knows no constraints on metrics"
            self._report("sweep.constraints", what, sweep.place, "write method: tpe")
        return settings

    def _report(self, key: str, what: str, place: Place | None, hint: str = "") -> None:
        known = place if place is not None and place.name else None
        self.problems.append(Problem(key, what, known, hint))

    def _read_names(self, sweep: Node) -> dict[str, Node]:
        entries: dict[str, Node] = {}
        for written, node in sweep.mapping.items():
            key = _WANDB_KEYS.get(written, written)
            if written in _WANDB_IGNORED:
                self.notes.append(f"sweep.{written} is not used: trials run this config")
            elif key not in _KEYS:
                hint = suggest(written, (*_KEYS, *_WANDB_KEYS))
                self._report(f"sweep.{written}", f"unknown key {written!r}", node.key_place, hint)
            elif key in entries:
                what = f"means the same as {key!r}"
                self._report(f"sweep.{written}", what, node.key_place, "remove one of them")
            else:
                entries[key] = node
        return entries

    def _read_method(self, node: Node | None) -> Method:
        if node is None:
            return "tpe" if _has_optuna() else "quasi-random"
        method = _METHODS.get(str(node.value).lower().replace("_", "-"))
        if method is None:
            what = f"unknown method {node.value!r}"
            self._report("sweep.method", what, node.place, suggest(str(node.value), _METHODS))
            return "random"
        if method in ("tpe", "gp", "cma-es") and not _has_optuna():
            what = f"{method!r} needs Optuna, which is not installed"
            hint = "pip install 'epochal[sweep]', or write method: quasi-random"
            self._report("sweep.method", what, node.place, hint)
        return method

    def _read_count(
        self, entries: Mapping[str, Node], key: str, default: int | None, *, least: int
    ) -> int | None:
        node = entries.get(key)
        if node is None or node.value is None:
            return default
        if isinstance(node.value, bool) or not isinstance(node.value, int) or node.value < least:
            what = f"expected a whole number from {least}, got {_show(node)}"
            self._report(f"sweep.{key}", what, node.place)
            return default
        return node.value

    def _read_number(self, node: Node | None, key: str, default: float | None) -> float | None:
        if node is None or node.value is None:
            return default
        if isinstance(node.value, bool) or not isinstance(node.value, int | float):
            self._report(key, f"expected a number, got {_show(node)}", node.place)
            return default
        return float(node.value)

    # Objectives

    def _read_objectives(self, node: Node | None) -> tuple[tuple[Objective, ...], float | None]:
        written = node if node is not None else self._expanded.find("monitor")
        if written is None or written.value is None:
            hint = "write objective: +val/acc in sweep, or monitor: +val/acc in the config"
            self._report("sweep.objective", "nothing says which trial is best", None, hint)
            return (), None
        parts = written.elements if written.is_list else (written,)
        found = [self._read_objective(part) for part in parts]
        target = parts[0].find("target") if parts and parts[0].is_mapping else None
        number = self._read_number(target, "sweep.objective.target", None)
        return tuple(one for one in found if one is not None), number

    def _read_objective(self, node: Node) -> Objective | None:
        key = "sweep.objective"
        text = str((node.find("metric") or node.find("name") or node).value or "")
        signed = {"+": "max", "-": "min"}.get(text[:1])
        metric = text[1:] if signed else text
        goal = str((node.find("mode") or node.find("goal") or Node("")).value or "")
        goals = {"minimize": "min", "maximize": "max", "min": "min", "max": "max", "": ""}
        at = str((node.find("at") or Node("best")).value)
        if node.is_mapping:
            known = ("metric", "name", "mode", "goal", "at", "target", "min_delta")
            for name in set(node.mapping) - set(known):
                place = node.mapping[name].key_place
                self._report(f"{key}.{name}", f"unknown key {name!r}", place, suggest(name, known))
        if goal not in goals or at not in ("best", "last"):
            what = f"unknown direction {goal!r}" if goal not in goals else f"unknown value {at!r}"
            self._report(key, what, node.place, "write min or max; at is best or last")
            return None
        mode = signed or goals[goal] or self._monitor_mode(metric)
        if not metric or not mode:
            what = f"does not say which way is better: {text!r}"
            hint = f"write '+{metric}' if larger is better, '-{metric}' if smaller is better"
            self._report(key, what, node.place, hint)
            return None
        if signed and goals[goal] not in ("", signed):
            self._report(key, f"{goal!r} contradicts the sign of {text!r}", node.place)
        return Objective(
            metric, "min" if mode == "min" else "max", "best" if at == "best" else "last"
        )

    def _monitor_mode(self, metric: str) -> str:
        """The direction of the config's monitor, if it is the same metric."""
        monitor = self._expanded.find("monitor")
        if monitor is None or monitor.value is None:
            return ""
        text = str((monitor.find("metric") or monitor).value)
        mode = str((monitor.find("mode") or Node("")).value or "")
        signed = {"+": "max", "-": "min"}.get(text[:1], mode)
        return signed if text.lstrip("+-") == metric else ""

    # Pruning

    def _read_pruner(self, node: Node | None) -> Pruner | None:
        if node is None or node.value in (None, False):
            return None
        if not node.is_mapping:
            node = replace(node, value=MappingProxyType({"type": replace(node)}))
        options: dict[str, Any] = {}
        names = {one.name for one in fields(Pruner)}
        wandb = {"min_iter": "min_evaluations", "eta": "factor", "s": "brackets"}
        for written, child in node.mapping.items():
            key = wandb.get(written, written)
            if written in ("max_iter", "strict"):
                self.notes.append(f"sweep.prune.{written} is not used")
            elif key not in names:
                hint = suggest(written, names)
                self._report(f"sweep.prune.{written}", "unknown key", child.key_place, hint)
            else:
                options[key] = child.value
        kind = options.get("type", "asha")
        if kind not in get_args(PrunerName):
            what = f"unknown rule {kind!r}"
            self._report("sweep.prune", what, node.place, suggest(str(kind), get_args(PrunerName)))
            return None
        least = {"min_evaluations": 1, "factor": 2, "brackets": 1, "percentile": 0, "min_trials": 2}
        for name, value in options.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            is_whole = name == "percentile" or isinstance(value, int)
            if name != "type" and not (is_number and is_whole and value >= least[name]):
                what = f"expected a number from {least[name]}, got {value!r}"
                self._report(f"sweep.prune.{name}", what, node.mapping.get(name, node).place)
                return None
        return Pruner(**options)

    # Constraints

    def _read_constraints(
        self, node: Node | None, space: Space
    ) -> tuple[tuple[ValueConstraint, ...], tuple[Condition, ...]]:
        constraints: list[ValueConstraint] = []
        conditions: list[Condition] = []
        if node is None or node.value is None:
            return (), ()
        for part in node.elements if node.is_list else (node,):
            text = str(part.value)
            try:
                if "/" in text.split()[0]:
                    conditions.append(parse_condition(text))
                    continue
                constraint = parse_constraint(text)
            except (ValueError, IndexError) as error:
                self._report("sweep.constraints", str(error), part.place)
                continue
            known = {one.key for one in space.parameters}
            for key in sorted(constraint.keys - known):
                if self._expanded.find(key) is None:
                    what = f"there is no key {key!r}"
                    self._report("sweep.constraints", what, part.place, suggest(key, known))
            constraints.append(constraint)
        return tuple(constraints), tuple(conditions)

    # Space

    def _read_space(self, node: Node | None, method: Method) -> Space:
        if node is None or not node.mapping:
            hint = "write for example space: {optim.lr: {min: 1e-4, max: 1e-1, log: true}}"
            place = None if node is None else node.place
            self._report("sweep.space", "there is nothing to search", place, hint)
            return Space()
        found: dict[str, SweepParameter] = {}
        for key, child in self._iter_parameters(node, ""):
            parameter = self._read_parameter(key, child)
            if parameter is None:
                continue
            if method == "grid" and not parameter.values.grid():
                what = "a grid needs to know which values of the range"
                self._report(f"sweep.space.{key}", what, child.place, "add step: or points:")
            found[key] = parameter
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
                self._report("sweep.space", what, waiting[0].place, "remove one `when`")
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
            self._report(f"sweep.space.{key}", "expected values, got an empty list", node.place)
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
                self._report(f"sweep.space.{key}.probabilities", what, probabilities.place)
                return None
        return ValueChoice(values, weights)

    def _read_mapping(self, key: str, node: Node) -> Distribution | None:
        path, entries = f"sweep.space.{key}", node.mapping
        for name, child in entries.items():
            if name not in _RANGE_KEYS:
                hint = suggest(name, _RANGE_KEYS)
                self._report(f"{path}.{name}", f"unknown key {name!r}", child.key_place, hint)
                return None
        if "values" in entries:
            return self._read_choice(key, entries["values"], entries.get("probabilities"))
        if "value" in entries:
            return ValueChoice((entries["value"].to_plain(),))
        kind = str(entries["distribution"].value) if "distribution" in entries else ""
        if kind and (kind not in _DISTRIBUTIONS or kind == "inv_log_uniform_values"):
            hint = suggest(kind, (*_UNIFORM, *_NORMAL))
            self._report(f"{path}.distribution", f"unknown distribution {kind!r}", node.place, hint)
            return None
        step = self._read_number(entries.get("step", entries.get("q")), f"{path}.step", None)
        if step is not None and step <= 0:
            self._report(f"{path}.step", f"must be above 0, got {step:g}", node.place)
            return None
        if kind in _NORMAL:
            mean = self._read_number(entries.get("mu"), f"{path}.mu", 0.0)
            deviation = self._read_number(entries.get("sigma"), f"{path}.sigma", 1.0)
            if not deviation or deviation <= 0:
                self._report(f"{path}.sigma", "must be above 0", node.place)
                return None
            return NormalRange(mean or 0.0, deviation, _NORMAL[kind], step)
        return self._read_range(key, node, kind, step)

    def _read_range(self, key: str, node: Node, kind: str, step: float | None) -> ValueRange | None:
        path, entries = f"sweep.space.{key}", node.mapping
        ends = [
            self._read_number(entries.get(name), f"{path}.{name}", None) for name in ("min", "max")
        ]
        low, high = ends
        if low is None or high is None:
            missing = "min" if low is None else "max"
            hint = "write {min: 1e-4, max: 1e-1, log: true}, or a list of values"
            self._report(path, f"{missing!r} is missing", node.place, hint)
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
        points = (
            self._read_count({"points": entries["points"]}, "points", None, least=2)
            if ("points" in entries)
            else None
        )
        if not math.isfinite(low) or not math.isfinite(high) or low >= high:
            self._report(path, f"min must be below max, got {low:g} and {high:g}", node.place)
            return None
        if is_log and low <= 0:
            what = f"min must be above 0 for a logarithmic range, got {low:g}"
            self._report(f"{path}.min", what, entries["min"].place)
            return None
        if is_log and step is not None:
            self._report(f"{path}.step", "a logarithmic range has no step", node.place)
            return None
        return ValueRange(low, high, is_log, step, is_integer, points)

    def _read_when(self, key: str, node: Node | None) -> Mapping[str, tuple[Any, ...]]:
        if node is None:
            return MappingProxyType({})
        if not node.is_mapping:
            hint = "write when: {optim.type: sgd}"
            self._report(f"sweep.space.{key}.when", "expected a mapping", node.place, hint)
            return MappingProxyType({})
        return MappingProxyType(
            {
                name: tuple(one.value for one in child.elements)
                if child.is_list
                else (child.value,)
                for name, child in node.mapping.items()
            }
        )


def _to_int(value: object) -> int:
    return value if isinstance(value, int) else 0


def _show(node: Node) -> str:
    return "a list" if node.is_list else "a mapping" if node.is_mapping else repr(node.value)


def _has_optuna() -> bool:
    from importlib.util import find_spec

    return find_spec("optuna") is not None
