"""Reads the section ``sweep`` of a config, with the keys of Epochal or of a W&B sweep file."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, final, get_args

from typing_extensions import override

from epochal.check.values.unknown_keys import describe_unknown
from epochal.config.condition import Condition, parse_condition
from epochal.config.node import Node
from epochal.errors import ConfigError, Problem, suggest
from epochal.sweep.constraints import ValueConstraint, parse_constraint
from epochal.sweep.pruning import Pruner, PrunerName
from epochal.sweep.sampling import Method
from epochal.sweep.space_reader import SpaceReader
from epochal.sweep.value_reader import ValueReader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from epochal.sweep.space import Space

KEYS = (
    *("name", "method", "trials", "objective", "repeats", "prune", "space", "constraints"),
    *("seed", "max_failures", "target"),
)
"""The keys of the section ``sweep``."""

_MAX_COUNTED = 10_000
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
_DEFAULT_TRIALS = 20
MAX_REPEATS = 1000
"""The most runs of one trial, which the keys of its jobs leave room for."""


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

    @cached_property
    def num_planned(self) -> int | None:
        """How many trials there are in the end; None for a grid with too many points to count."""
        if self.method != "grid":
            return self.num_trials
        points = list(islice(self.space.iter_grid(), _MAX_COUNTED + 1))
        if len(points) > _MAX_COUNTED:
            return self.num_trials
        count = sum(map(self.is_allowed, points))
        return count if self.num_trials is None else min(count, self.num_trials)

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
    if reader.values.problems or settings is None:
        raise ConfigError(*reader.values.problems)
    return settings


@final
class _Reader:
    """Collects every mistake of the section."""

    def __init__(self, expanded: Node) -> None:
        self.values = ValueReader()
        self.notes: list[str] = []
        self._expanded = expanded

    def read(self, sweep: Node) -> SweepSettings | None:
        entries = self._read_names(sweep)
        method = self._read_method(entries.get("method"))
        space = SpaceReader(self.values, self._expanded).read(entries.get("space"), method)
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
            repeats=self._read_count(entries, "repeats", 1, least=1, most=MAX_REPEATS) or 1,
            pruner=self._read_pruner(entries.get("prune")),
            constraints=constraints,
            metric_constraints=conditions,
            seed=self._read_count(entries, "seed", 0, least=0) or 0,
            base_seed=_to_int((self._expanded.find("seed") or Node(0)).value),
            name=str(entries["name"].value or "") if "name" in entries else "",
            max_failures=self._read_count(entries, "max_failures", 5, least=1) or 5,
            target=self.values.read_number(entries.get("target"), "sweep.target", target),
            notes=tuple(self.notes),
        )
        if settings.repeats > 1 and any(one.key == "seed" for one in space.parameters):
            what = "the seed is set by repeats, and cannot be searched as well"
            self.values.report(
                "sweep.space.seed", what, entries["space"].place, "remove one of both"
            )
        if settings.pruner is not None and len(objectives) > 1:
            what = "trials cannot be stopped early with several objectives"
            self.values.report("sweep.prune", what, entries["prune"].place, "remove one of both")
        if settings.method in ("gp", "cma-es") and len(objectives) > 1:
            what = f"{settings.method!r} takes one objective"
            self.values.report("sweep.method", what, sweep.place, "write method: tpe")
        if settings.method == "cma-es" and conditions:
            what = "'cma-es' knows no constraints on metrics"
            self.values.report("sweep.constraints", what, sweep.place, "write method: tpe")
        return settings

    def _read_names(self, sweep: Node) -> dict[str, Node]:
        entries: dict[str, Node] = {}
        for written, node in sweep.mapping.items():
            key = _WANDB_KEYS.get(written, written)
            if written in _WANDB_IGNORED:
                self.notes.append(f"sweep.{written} is not used: trials run this config")
            elif key not in KEYS:
                hint = suggest(written, (*KEYS, *_WANDB_KEYS))
                self.values.report(
                    f"sweep.{written}", describe_unknown(written), node.key_place, hint
                )
            elif key in entries:
                what = f"means the same as {key!r}"
                self.values.report(f"sweep.{written}", what, node.key_place, "remove one of them")
            else:
                entries[key] = node
        return entries

    def _read_count(
        self,
        entries: Mapping[str, Node],
        key: str,
        default: int | None,
        *,
        least: int,
        most: float = math.inf,
    ) -> int | None:
        node = entries.get(key)
        return self.values.read_count(node, f"sweep.{key}", default, least=least, most=most)

    def _read_method(self, node: Node | None) -> Method:
        if node is None or node.value is None:
            return "tpe" if _has_optuna() else "quasi-random"
        method = _METHODS.get(str(node.value).lower().replace("_", "-"))
        if method is None:
            what = f"unknown method {node.value!r}"
            self.values.report("sweep.method", what, node.place, suggest(str(node.value), _METHODS))
            return "random"
        if method in ("tpe", "gp", "cma-es") and not _has_optuna():
            what = f"{method!r} needs Optuna, which is not installed"
            hint = "pip install 'epochal[sweep]', or write method: quasi-random"
            self.values.report("sweep.method", what, node.place, hint)
        return method

    # Objectives

    def _read_objectives(self, node: Node | None) -> tuple[tuple[Objective, ...], float | None]:
        written = node if node is not None else self._expanded.find("monitor")
        if written is None or written.value is None:
            hint = "write objective: +val/acc in sweep, or monitor: +val/acc in the config"
            self.values.report("sweep.objective", "nothing says which trial is best", None, hint)
            return (), None
        parts = written.elements if written.is_list else (written,)
        found = [self._read_objective(part) for part in parts]
        target = parts[0].find("target") if parts and parts[0].is_mapping else None
        number = self.values.read_number(target, "sweep.objective.target", None)
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
                self.values.report(
                    f"{key}.{name}", describe_unknown(name), place, suggest(name, known)
                )
        if goal not in goals or at not in ("best", "last"):
            what = f"unknown direction {goal!r}" if goal not in goals else f"unknown value {at!r}"
            self.values.report(key, what, node.place, "write min or max; at is best or last")
            return None
        mode = signed or goals[goal] or self._monitor_mode(metric)
        if not metric or not mode:
            what = f"does not say which way is better: {text!r}"
            hint = f"write '+{metric}' if larger is better, '-{metric}' if smaller is better"
            self.values.report(key, what, node.place, hint)
            return None
        if signed and goals[goal] not in ("", signed):
            self.values.report(key, f"{goal!r} contradicts the sign of {text!r}", node.place)
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
                self.values.report(
                    f"sweep.prune.{written}", describe_unknown(written), child.key_place, hint
                )
            else:
                options[key] = child.value
        kind = options.get("type", "asha")
        if kind not in get_args(PrunerName):
            what = f"unknown rule {kind!r}"
            self.values.report(
                "sweep.prune", what, node.place, suggest(str(kind), get_args(PrunerName))
            )
            return None
        least = {"min_evaluations": 1, "factor": 2, "brackets": 1, "percentile": 0, "min_trials": 2}
        for name, value in options.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            is_whole = name == "percentile" or isinstance(value, int)
            if name != "type" and not (is_number and is_whole and value >= least[name]):
                what = f"expected a number from {least[name]}, got {value!r}"
                self.values.report(f"sweep.prune.{name}", what, node.mapping.get(name, node).place)
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
                self.values.report("sweep.constraints", str(error), part.place)
                continue
            known = {one.key for one in space.parameters}
            known |= {key for key, _ in self._expanded.iter_leaves()}
            for key in sorted(constraint.keys - known):
                if self._expanded.find(key) is None:
                    what = f"there is no key {key!r}"
                    self.values.report("sweep.constraints", what, part.place, suggest(key, known))
            constraints.append(constraint)
        return tuple(constraints), tuple(conditions)


def _to_int(value: object) -> int:
    return value if isinstance(value, int) else 0


def _has_optuna() -> bool:
    from importlib.util import find_spec

    return find_spec("optuna") is not None
