"""Line charts as PNG files, drawn with matplotlib."""

from __future__ import annotations

import io
import math
import warnings
from typing import TYPE_CHECKING

from epochal import durable
from epochal.cli.draw.chart import compute_bounds, merge_equal_lines
from epochal.cli.draw.text_table import shorten
from epochal.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from epochal.cli.draw.chart import Chart

_LONGEST_TITLE = 100
_LONGEST_NAME = 44
_MOST_INSIDE = 5
_FEW_POINTS = 40
_FONTS = (
    "DejaVu Sans",
    "Noto Sans CJK SC",
    "PingFang SC",
    "Microsoft YaHei",
    "WenQuanYi Micro Hei",
)
"""The first lacks CJK characters, which come from the others where installed."""


def save_png(chart: Chart, path: Path) -> None:
    """Write the chart as a PNG file."""
    try:
        import matplotlib as mpl
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.font_manager import fontManager
    except ImportError as error:
        what = "a chart as a picture needs matplotlib, which is not installed"
        hint = "pip install 'epochal[plot]', or leave out --png"
        raise ConfigError(Problem("--png", what, hint=hint)) from error
    installed = {font.name for font in fontManager.ttflist}
    picture = io.BytesIO()
    with mpl.rc_context({"font.family": [one for one in _FONTS if one in installed]}):
        figure = Figure(figsize=(9, 4.5), layout="constrained")
        FigureCanvasAgg(figure)
        _fill(figure, chart)
        with warnings.catch_warnings():
            # Characters that no font has are drawn as boxes; a warning would not help.
            warnings.filterwarnings("ignore", message="Glyph")
            figure.savefig(picture, dpi=120, format="png")
    durable.write_bytes(path, picture.getvalue())


def _fill(figure: Figure, chart: Chart) -> None:
    axes = figure.add_subplot()
    lines = merge_equal_lines(chart.lines)
    for name, values in lines.items():
        known = [pair for pair in zip(chart.x, values, strict=True) if pair[1] is not None]
        ys = [math.nan if y is None else y for _, y in known]
        alone = _alone(ys) if len(ys) > _FEW_POINTS else list(range(len(ys)))
        axes.plot(
            [x for x, _ in known],
            ys,
            label=shorten(name, _LONGEST_NAME),
            linewidth=1.6,
            marker="o" if alone else "",
            markersize=3,
            markevery=alone or None,
        )
    _mark_places(axes, chart)
    if chart.is_log_x:
        axes.set_xscale("log")
    low, high = compute_bounds(chart)
    if chart.is_log_y:
        axes.set_yscale("log")
        axes.set_ylim(low / 1.2, high * 1.2)
    else:
        axes.set_ylim(low, high + (high - low) * 0.05)
    axes.set_xlabel(", ".join([chart.x_name, *(f"| {name}" for name in chart.ticks)]))
    axes.set_ylabel(shorten(chart.y_name, _LONGEST_NAME))
    axes.set_title(shorten(chart.title, _LONGEST_TITLE), loc="left", fontsize=10)
    axes.grid(visible=True, color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if len(lines) > _MOST_INSIDE:
        figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    elif len(chart.lines) > 1:
        axes.legend(frameon=False, fontsize=8)


def _mark_places(axes: Axes, chart: Chart) -> None:
    for places in chart.ticks.values():
        axes.plot(
            places, [0.015] * len(places), "|", color="0.45", transform=axes.get_xaxis_transform()
        )
    for name, place in {**chart.borders, **chart.points}.items():
        axes.axvline(place, color="0.6", linewidth=1, linestyle="--")
        axes.annotate(
            name,
            (place, 1.0),
            xycoords=axes.get_xaxis_transform(),
            rotation=90,
            va="top",
            ha="left",
            size=8,
        )


def _alone(values: Sequence[float]) -> list[int]:
    """Indices of points without a finite neighbour, which no line would show."""
    there = [False, *map(math.isfinite, values), False]
    return [i for i in range(len(values)) if there[i + 1] and not there[i] and not there[i + 2]]
