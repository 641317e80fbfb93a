"""The figures of a report as plain data, which the HTML page and the PNG file draw."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

from epochal.sweep.report.axis import Axis, axis_of_numbers, axis_of_parameter
from epochal.sweep.report.importance import measure_importance
from epochal.sweep.trials import rank_trials

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from epochal.sweep.settings import SweepSettings
    from epochal.sweep.trials import Trial

MAX_LINES = 400
"""Trials in figures that draw a line for each: the best ones."""

_NUM_TABLE = 10


@final
@dataclass(frozen=True)
class Mark:
    """One trial in the figures."""

    number: int
    state: str
    values: Mapping[str, Any]
    objectives: tuple[float, ...]
    """Empty for a trial without a result."""

    curve: tuple[float, ...]
    """The first objective at each evaluation of the first run."""

    share: float = math.nan
    """From 0, the worst, to 1, the best; NaN without a result."""


@final
@dataclass(frozen=True, kw_only=True)
class Figures:
    """All figures of a sweep."""

    title: str
    counts: str
    settings: SweepSettings
    marks: tuple[Mark, ...]
    """In the order of their numbers."""

    best: tuple[Mark, ...]
    """The best finished trials; with several objectives those on the Pareto front."""

    best_so_far: tuple[tuple[int, float], ...]
    """Number of the trial and the value, where it became better."""

    importance: Mapping[str, float]
    axes: tuple[Axis, ...]
    """One for each parameter, the most important first."""

    objective: Axis

    @property
    def finished(self) -> tuple[Mark, ...]:
        """The trials that finished with a result."""
        return tuple(one for one in self.marks if one.state == "finished" and one.objectives)

    @property
    def parallel_axes(self) -> tuple[Axis, ...]:
        """The axes of parallel coordinates: the parameters, then the objective."""
        return (*self.axes, self.objective)

    def place_on_axes(self, mark: Mark) -> list[float | None]:
        """The places of a trial with a result on the parallel axes; None where it has no value."""
        shown = [*(mark.values.get(axis.label) for axis in self.axes), mark.objectives[0]]
        pairs = zip(self.parallel_axes, shown, strict=True)
        return [None if value is None else axis.place(value) for axis, value in pairs]

    @property
    def lines(self) -> tuple[Mark, ...]:
        """Trials for figures with a line for each, the best last."""
        known = sorted(self.marks, key=lambda one: -1.0 if math.isnan(one.share) else one.share)
        return tuple(known[-MAX_LINES:])


def prepare_figures(title: str, settings: SweepSettings, trials: Collection[Trial]) -> Figures:
    """The figures of a sweep."""
    marks = _add_shares([_mark(one, settings) for one in trials], settings)
    by_number = {one.number: one for one in marks}
    ranked = [by_number[one.number] for one in rank_trials(trials, settings)]
    finished = [one for one in marks if one.state == "finished" and one.objectives]
    keys = [one.key for one in settings.space.parameters]
    importance = measure_importance(keys, [(one.values, one.objectives[0]) for one in finished])
    parameters = {one.key: one for one in settings.space.parameters}
    axes = [
        axis_of_parameter(parameters[key], found)
        for key in importance or keys
        if (found := [one.values[key] for one in marks if key in one.values])
    ]
    return Figures(
        title=title,
        counts=_count(marks),
        settings=settings,
        marks=tuple(marks),
        best=tuple(ranked[:_NUM_TABLE]),
        best_so_far=tuple(_find_improvements(finished, settings)),
        importance=importance,
        axes=tuple(axes),
        objective=_objective_axis(marks, settings),
    )


def _mark(trial: Trial, settings: SweepSettings) -> Mark:
    curves = trial.runs[0].curves if trial.runs else ()
    found = trial.get_objectives(settings) or ()
    return Mark(trial.number, trial.state, trial.values, found, curves[0] if curves else ())


def _add_shares(marks: Sequence[Mark], settings: SweepSettings) -> list[Mark]:
    """The marks with their rank among all results; ranks spread colours evenly."""
    sign = 1.0 if settings.objectives[0].mode == "max" else -1.0
    known = sorted(sign * one.objectives[0] for one in marks if one.objectives)
    places = {value: place / max(len(known) - 1, 1) for place, value in enumerate(known)}
    return [
        replace(one, share=places[sign * one.objectives[0]]) if one.objectives else one
        for one in marks
    ]


def _count(marks: Sequence[Mark]) -> str:
    states = [one.state for one in marks]
    names = ("finished", "pruned", "failed", "running", "waiting")
    parts = [f"{states.count(name)} {name}" for name in names if name in states]
    return f"{len(states)} trials: {', '.join(parts)}" if parts else "no trials yet"


def _find_improvements(
    finished: Sequence[Mark], settings: SweepSettings
) -> list[tuple[int, float]]:
    best: list[tuple[int, float]] = []
    for one in finished:
        value = one.objectives[0]
        if not best or settings.objectives[0].is_better(value, best[-1][1]):
            best.append((one.number, value))
    return best


def _objective_axis(marks: Sequence[Mark], settings: SweepSettings) -> Axis:
    """All values, unless a few bad ones would press the rest together."""
    objective = settings.objectives[0]
    values = sorted(one.objectives[0] for one in marks if one.objectives)
    if len(values) >= 8:
        quarter = len(values) // 4
        low, high = values[quarter], values[-1 - quarter]
        span = 3 * (high - low) or math.inf
        values = [one for one in values if low - span <= one <= high + span]
    return axis_of_numbers(objective.metric, values)
