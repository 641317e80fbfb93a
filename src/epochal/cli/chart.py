"""Charts of numbers: drawn with characters for a terminal, or as PNG with matplotlib."""

from __future__ import annotations

import io
import math
import os
import shutil
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from epochal import durable
from epochal.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_HEIGHT = 13
_ROWS_PER_TICK = 3
_MOST_NAMED = 8
_COLOURS = (36, 33, 35, 32, 34, 31)  # of a terminal's sixteen
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a braille letter, by row
_BRAILLE = 0x2800


@final
@dataclass(frozen=True, kw_only=True)
class Chart:
    """Lines over one axis, with marks on it."""

    title: str
    x: Sequence[float]
    lines: Mapping[str, Sequence[float]]
    """As many values as ``x`` has, by name; what is not finite is left out."""

    x_name: str
    y_name: str
    is_log: bool = False
    """Whether ``x`` is laid out by its logarithm."""

    ticks: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Places on the axis that have a meaning, such as evaluations."""

    borders: Mapping[str, float] = field(default_factory=dict)
    """Places that divide the chart, by what begins there."""

    points: Mapping[str, float] = field(default_factory=dict)
    """Places that are pointed out, by name."""

    top: float | None = None
    """Where to cut lines off that go far up."""


def show(chart: Chart) -> list[str]:
    """The chart as lines of text for standard output, as wide as that is."""
    width = shutil.get_terminal_size((80, 24)).columns
    return draw(chart, width=width, has_colours=takes_colours(), is_plain=not _takes_braille())


def draw(
    chart: Chart, *, width: int, has_colours: bool = False, is_plain: bool = False
) -> list[str]:
    """The chart as lines of text.

    Args:
        chart: What to draw.
        width: Most characters of a line.
        has_colours: Tell lines apart by colours, too.
        is_plain: Use ASCII only.
    """
    named = _join_equal(chart.lines)
    low, high = _bounds(chart, named)
    heights = [(low * row + high * (_HEIGHT - 1 - row)) / (_HEIGHT - 1) for row in range(_HEIGHT)]
    labels = [_number(height, high - low) for height in heights]
    gutter = max(len(label) for label in labels[::_ROWS_PER_TICK]) + 1
    canvas = _Canvas(max(10, width - gutter - 1), is_plain=is_plain)
    bounds = (_place(chart.x[0], chart), _place(chart.x[-1], chart))
    xs = [_share(_place(one, chart), *bounds) for one in chart.x]
    for index, values in enumerate(named.values()):
        canvas.line(index, xs, [_share(min(one, high), low, high) for one in values])
    for place in chart.borders.values():
        if place != chart.x[0]:
            canvas.column(_share(_place(place, chart), *bounds))
    text = [chart.title]
    edge = ("|", "+") if is_plain else ("│", "┤")
    for row, line in enumerate(canvas.rows(has_colours=has_colours)):
        is_tick = row % _ROWS_PER_TICK == 0
        label = labels[row] if is_tick else ""
        text.append(f"{label:>{gutter - 1}} {edge[is_tick]}{line}".rstrip())
    text.extend(_axis(chart, canvas.width, gutter, bounds, is_plain=is_plain))
    if len(named) > 1:
        text.extend(" " * (gutter + 1) + one for one in _names(named, has_colours=has_colours))
    return text


def _names(named: Mapping[str, Sequence[float]], *, has_colours: bool) -> Iterator[str]:
    """Which line is whose, by its colour and by how high it is."""
    for index, (name, values) in enumerate([*named.items()][:_MOST_NAMED]):
        finite = [one for one in values if math.isfinite(one)]
        extent = "nothing"
        if finite:
            low, high = min(finite), max(finite)
            extent = _number(low, high - low)
            if low != high:
                extent += f" to {_number(high, high - low)}"
        yield f"{_coloured(name, index) if has_colours else name}: {extent}"
    if len(named) > _MOST_NAMED:
        yield f"and {len(named) - _MOST_NAMED} more"


def _coloured(text: str, index: int) -> str:
    return f"\x1b[{_COLOURS[index % len(_COLOURS)]}m{text}\x1b[0m"


@final
class _Canvas:
    """Cells of a terminal, each of two by four dots."""

    def __init__(self, width: int, *, is_plain: bool) -> None:
        self.width = width
        self._across, self._down = (1, 1) if is_plain else (2, 4)
        self._is_plain = is_plain
        self._cells: dict[tuple[int, int], int] = {}
        self._owners: dict[tuple[int, int], int] = {}
        self._columns: set[int] = set()

    def line(self, owner: int, xs: Sequence[float], ys: Sequence[float]) -> None:
        """Draw a line through points of a square of 1 by 1."""
        last: tuple[int, int] | None = None
        for x, y in zip(xs, ys, strict=True):
            if not math.isfinite(y):
                continue
            column = round(x * (self.width * self._across - 1))
            row = round((1 - y) * (_HEIGHT * self._down - 1))
            for dot in _between(last, (column, row)):
                self._put(owner, *dot)
            last = (column, row)

    def column(self, x: float) -> None:
        """Draw a line from top to bottom, behind all others."""
        self._columns.add(round(x * (self.width - 1)))

    def rows(self, *, has_colours: bool) -> Iterator[str]:
        """The cells as text."""
        for row in range(_HEIGHT):
            yield "".join(
                self._cell(column, row, has_colours=has_colours) for column in range(self.width)
            )

    def _put(self, owner: int, column: int, row: int) -> None:
        cell = (column // self._across, row // self._down)
        dot = 1 if self._is_plain else _DOTS[row % 4][column % 2]
        self._cells[cell] = self._cells.get(cell, 0) | dot
        self._owners[cell] = owner

    def _cell(self, column: int, row: int, *, has_colours: bool) -> str:
        dots = self._cells.get((column, row))
        if dots is None:
            border = ":" if self._is_plain else "┆"
            return border if column in self._columns else " "
        letter = "*" if self._is_plain else chr(_BRAILLE + dots)
        return _coloured(letter, self._owners[column, row]) if has_colours else letter


def _between(start: tuple[int, int] | None, end: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """The dots of a straight line, without its first one."""
    if start is None:
        yield end
        return
    count = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
    for index in range(1, count + 1):
        share = index / count
        yield (
            round(start[0] + (end[0] - start[0]) * share),
            round(start[1] + (end[1] - start[1]) * share),
        )


def _axis(
    chart: Chart, width: int, gutter: int, bounds: tuple[float, float], *, is_plain: bool
) -> Iterator[str]:
    """The line under the chart, the numbers on it, and what its marks mean."""
    line = list(("-" if is_plain else "─") * width)
    symbol, pointer = ("|", "^") if is_plain else ("┴", "▲")
    for places in chart.ticks.values():
        for place in places:
            line[_column(place, chart, bounds, width)] = symbol
    for place in chart.points.values():
        line[_column(place, chart, bounds, width)] = pointer
    yield " " * gutter + ("+" if is_plain else "└") + "".join(line)
    yield " " * (gutter + 1) + _numbers(chart, width, bounds)
    legend = [chart.x_name]
    legend += [f"{symbol} {name}" for name in chart.ticks]
    legend += [f"{pointer} {name}" for name in chart.points]
    legend += [f"{name} from {_whole(place)}" for name, place in chart.borders.items()]
    yield " " * (gutter + 1) + ", ".join(legend)


def _numbers(chart: Chart, width: int, bounds: tuple[float, float]) -> str:
    """Numbers below the axis, as many as fit."""
    text = [" "] * (width + 12)
    free = 0
    for place in _round_places(chart, width):
        label = f"{place:.0e}" if chart.is_log else _whole(place)
        column = _column(place, chart, bounds, width)
        start = max(0, min(column - len(label) // 2, width - len(label)))
        if start >= free:
            text[start : start + len(label)] = label
            free = start + len(label) + 2
    return "".join(text).rstrip()


def _round_places(chart: Chart, width: int) -> list[float]:
    first, last = chart.x[0], chart.x[-1]
    if chart.is_log:
        powers = range(math.ceil(math.log10(first) - 1e-9), math.floor(math.log10(last) + 1e-9) + 1)
        return [10.0**power for power in powers]
    rough = (last - first) / max(2, min(8, width // 14)) or 1
    power = 10 ** math.floor(math.log10(rough))
    step = max(1, next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough))
    return [first + step * index for index in range(int((last - first) / step) + 1)]


def _column(place: float, chart: Chart, bounds: tuple[float, float], width: int) -> int:
    share = _share(_place(place, chart), *bounds)
    return min(width - 1, max(0, round(share * (width - 1))))


def _place(x: float, chart: Chart) -> float:
    return math.log10(x) if chart.is_log else x


def _share(value: float, low: float, high: float) -> float:
    return (value - low) / (high - low) if high > low else 0.5


def _bounds(chart: Chart, named: Mapping[str, Sequence[float]]) -> tuple[float, float]:
    finite = [one for values in named.values() for one in values if math.isfinite(one)]
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    if chart.top is not None:
        high = min(high, chart.top)
    low = min(low, 0.0) if low < high / 2 else low
    return (low, high) if high > low else (low - abs(low) or -1.0, high + abs(high) or 1.0)


def _join_equal(lines: Mapping[str, Sequence[float]]) -> dict[str, Sequence[float]]:
    """The lines by name; those that are equal once, with all their names."""
    names: dict[tuple[float, ...], list[str]] = {}
    for name, values in lines.items():
        names.setdefault(tuple(values), []).append(name)
    return {", ".join(shared): values for values, shared in names.items()}


def _number(value: float, extent: float) -> str:
    """A number with as many digits as tell it from others that are so far away."""
    if not value:
        return "0"
    closeness = math.log10(abs(value) / extent) if extent > 0 else 0.0
    return f"{value:.{3 + max(0, math.floor(closeness))}g}"


def _whole(value: float) -> str:
    return f"{round(value):,}"


def takes_colours() -> bool:
    """Whether colours on the screen are seen and wanted."""
    is_wanted = "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    return sys.stdout.isatty() and is_wanted


def _takes_braille() -> bool:
    try:
        "⣿┤▲".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def save_png(chart: Chart, path: Path) -> None:
    """Write the chart as a picture.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        what = "a picture needs matplotlib, which is not installed"
        hint = "pip install 'epochal[plot]', or leave out --png"
        raise ConfigError(Problem("--png", what, hint=hint)) from error
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for name, values in _join_equal(chart.lines).items():
        known = [pair for pair in zip(chart.x, values, strict=True) if math.isfinite(pair[1])]
        axes.plot([x for x, _ in known], [y for _, y in known], label=name, linewidth=1.6)
    for places in chart.ticks.values():
        axes.plot(
            places, [0.015] * len(places), "|", color="0.45", transform=axes.get_xaxis_transform()
        )
    for name, place in {**chart.borders, **chart.points}.items():
        axes.axvline(place, color="0.6", linewidth=1, linestyle="--")
        where = (place, 1.0)
        axes.annotate(
            name,
            where,
            xycoords=axes.get_xaxis_transform(),
            rotation=90,
            va="top",
            ha="left",
            size=8,
        )
    if chart.is_log:
        axes.set_xscale("log")
    low, high = _bounds(chart, chart.lines)
    axes.set_ylim(low, high + (high - low) * 0.05)
    axes.set_xlabel(", ".join([chart.x_name, *(f"| {name}" for name in chart.ticks)]))
    axes.set_ylabel(chart.y_name)
    axes.set_title(chart.title, loc="left", fontsize=10)
    if len(chart.lines) > 1:
        axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    picture = io.BytesIO()
    figure.savefig(picture, dpi=120, format="png")
    durable.write_bytes(path, picture.getvalue())
