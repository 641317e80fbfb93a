"""The report of a sweep as one picture, drawn by matplotlib."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from epochal.sweep.report.axis import shorten
from epochal.sweep.report.svg import mix_colour

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.sweep.report.axis import Axis
    from epochal.sweep.report.figures import Figures

_COLUMNS = 3
_MAX_SLICES = 9
_MAX_CHARACTERS = 60
_MAX_TICK = 12
_BELOW = -0.06
"""Where a line passes an axis on which the trial has no value."""


def save_png(figures: Figures, path: Path) -> None:
    """Draw history, importance, curves, parallel coordinates and slices into a PNG file.

    Raises:
        ImportError: matplotlib is missing.
    """
    from matplotlib.figure import Figure

    slices = figures.axes[:_MAX_SLICES]
    num_rows = 2 + math.ceil(len(slices) / _COLUMNS)
    page = Figure(figsize=(14, 3.7 * num_rows + 0.7), layout="constrained")
    page.suptitle(f"{figures.title}\n{figures.counts}", fontsize=12)
    grid = page.add_gridspec(num_rows, _COLUMNS)
    _draw_history(page.add_subplot(grid[0, 0]), figures)
    _draw_importance(page.add_subplot(grid[0, 1]), figures)
    _draw_curves(page.add_subplot(grid[0, 2]), figures)
    _draw_parallel(page.add_subplot(grid[1, :]), figures)
    for index, axis in enumerate(slices):
        spot = page.add_subplot(grid[2 + index // _COLUMNS, index % _COLUMNS])
        _draw_slice(spot, figures, axis)
    page.savefig(path, dpi=130, format="png")


def _draw_history(plot: Any, figures: Figures) -> None:  # noqa: ANN401 - axes of matplotlib
    plot.set_title("history", fontsize=10)
    _label(plot, "trial", figures.objective.label, counts=True)
    for state, more in (("pruned", {"facecolors": "none"}), ("finished", {})):
        shown = [one for one in figures.marks if one.state == state and one.objectives]
        colours = [mix_colour(one.share) for one in shown]
        numbers, values = [one.number for one in shown], [one.objectives[0] for one in shown]
        if shown:
            options = {"edgecolors": colours, **more} if more else {"color": colours}
            plot.scatter(numbers, values, s=18, **options)
    if figures.best_so_far:
        last = figures.marks[-1].number
        steps = [*figures.best_so_far, (last, figures.best_so_far[-1][1])]
        plot.step(*zip(*steps, strict=True), where="post", color="#e16914")
    plot.set_ylim(*_limits(figures.objective))


def _draw_importance(plot: Any, figures: Figures) -> None:  # noqa: ANN401 - axes of matplotlib
    plot.set_title("share of variance explained alone", fontsize=10)
    shares = list(figures.importance.items())[::-1]
    plot.barh([key for key, _ in shares], [share for _, share in shares], color="#3278c8")
    plot.set_xlim(0, 1)
    plot.tick_params(labelsize=8)


def _draw_curves(plot: Any, figures: Figures) -> None:  # noqa: ANN401 - axes of matplotlib
    plot.set_title("curves, pruned ones faint", fontsize=10)
    _label(plot, "evaluation", figures.objective.label, counts=True)
    for one in figures.lines:
        if len(one.curve) > 1:
            steps = range(1, len(one.curve) + 1)
            alpha = 0.8 if one.state == "finished" else 0.25
            plot.plot(steps, one.curve, color=mix_colour(one.share), alpha=alpha, linewidth=1)


def _draw_parallel(plot: Any, figures: Figures) -> None:  # noqa: ANN401 - axes of matplotlib
    plot.set_title("parallel coordinates", fontsize=10)
    axes = figures.parallel_axes
    for mark in figures.lines:
        if mark.objectives:
            places = [_BELOW if place is None else place for place in figures.place_on_axes(mark)]
            alpha = 0.8 if mark.state == "finished" else 0.25
            colour = mix_colour(mark.share)
            plot.plot(range(len(axes)), places, color=colour, alpha=alpha, linewidth=1)
    for index, axis in enumerate(axes):
        plot.axvline(index, color="0.4", linewidth=0.8)
        for place, text in axis.ticks():
            label = shorten(text, _MAX_TICK)
            plot.annotate(label, (index, place), (4, -3), textcoords="offset points", fontsize=8)
    names = [shorten(axis.label, _MAX_CHARACTERS // 2) for axis in axes]
    plot.set_xticks(range(len(axes)), names, fontsize=9)
    plot.set_xlim(-0.05, len(axes) - 0.9)
    plot.set_ylim(_BELOW, 1.04)
    plot.set_yticks([])
    plot.spines[:].set_visible(False)


def _draw_slice(plot: Any, figures: Figures, axis: Axis) -> None:  # noqa: ANN401 - axes of matplotlib
    _label(plot, axis.label, figures.objective.label)
    shown = [one for one in figures.marks if one.objectives and axis.label in one.values]
    places = [(axis.place(one.values[axis.label]), one) for one in shown]
    known = [(place, one) for place, one in places if place is not None]
    colours = [mix_colour(one.share) for _, one in known]
    plot.scatter(
        [place for place, _ in known],
        [one.objectives[0] for _, one in known],
        edgecolors=colours,
        facecolors=[
            colour if one.state == "finished" else "none"
            for colour, (_, one) in zip(colours, known, strict=True)
        ],
        s=16,
    )
    ticks = axis.ticks()
    most = max(3, _MAX_CHARACTERS // max(len(ticks), 1))
    texts = [shorten(text, most) for _, text in ticks]
    plot.set_xticks([place for place, _ in ticks], texts, fontsize=8)
    plot.set_xlim(0, 1)
    plot.set_ylim(*_limits(figures.objective))


def _limits(axis: Axis) -> tuple[float, float]:
    margin = 0.04 * (axis.high - axis.low)
    return axis.low - margin, axis.high + margin


def _label(plot: Any, horizontal: str, vertical: str, *, counts: bool = False) -> None:  # noqa: ANN401 - axes of matplotlib
    plot.set_xlabel(horizontal, fontsize=9)
    plot.set_ylabel(vertical, fontsize=9)
    plot.grid(alpha=0.25)
    plot.tick_params(labelsize=8)
    if counts:
        plot.xaxis.get_major_locator().set_params(integer=True)
