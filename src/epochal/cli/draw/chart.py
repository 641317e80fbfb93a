"""Line charts and sparklines drawn with characters, for a terminal."""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, final

from epochal.cli.draw.text_table import shorten
from epochal.text.escape import escape_control
from epochal.text.terminal import can_encode, supports_colours, wrap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Values = Sequence[float | None]
    from collections.abc import Sequence

_HEIGHT = 13
_ROWS_PER_TICK = 3
_MOST_NAMED = 8
_MARKS = "*ox+#@%&"
"""For lines without colours; lines that the legend leaves out are drawn with dots."""

_COLOURS = (36, 33, 35, 32, 34, 31)  # ANSI codes
_DOTS = (
    (0x01, 0x08),
    (0x02, 0x10),
    (0x04, 0x20),
    (0x40, 0x80),
)  # bits of a braille character, by row
_BRAILLE = 0x2800
_BARS = "▁▂▃▄▅▆▇█"
_PLAIN_BARS = "_.-~=+*#"
_NOT_A_NUMBER = "!"


@final
@dataclass(frozen=True, kw_only=True)
class Chart:
    """Lines over one axis, with marks on it."""

    title: str
    x: Sequence[float]
    lines: Mapping[str, Values]
    """One value per ``x``, by name; a line skips None and has a gap at NaN and infinity."""

    x_name: str
    y_name: str
    is_log_x: bool = False
    """Whether the x axis is logarithmic."""

    is_log_y: bool = False
    """Whether the y axis is logarithmic; then all finite values must be positive."""

    ticks: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Positions to mark on the x axis, such as evaluations, by name."""

    borders: Mapping[str, float] = field(default_factory=dict)
    """Positions of vertical lines, by the name of what begins there."""

    points: Mapping[str, float] = field(default_factory=dict)
    """Positions to point at, by name."""

    top: float | None = None
    """The largest y value to show."""


def render_chart(chart: Chart) -> list[str]:
    """The chart as lines of text, as wide as the terminal."""
    width = shutil.get_terminal_size((80, 24)).columns
    # Names of metrics and stages may contain control characters.
    chart = replace(
        chart,
        title=escape_control(chart.title),
        lines={escape_control(name): values for name, values in chart.lines.items()},
        borders={escape_control(name): place for name, place in chart.borders.items()},
    )
    return draw_chart(
        chart, width=width, has_colours=supports_colours(), is_plain=not can_encode("⣿┤▲")
    )


def draw_chart(
    chart: Chart, *, width: int, has_colours: bool = False, is_plain: bool = False
) -> list[str]:
    """The chart as lines of text; without colours, marks tell its lines apart."""
    named = merge_equal_lines(chart.lines)
    low, high = compute_bounds(chart)
    up = math.log10 if chart.is_log_y else float
    shares = [row / (_HEIGHT - 1) for row in range(_HEIGHT)]
    heights = [up(high) * (1 - share) + up(low) * share for share in shares]
    labels = [_label(chart, height, high - low) for height in heights]
    gutter = max(len(label) for label in labels[::_ROWS_PER_TICK]) + 1
    has_marks = is_plain or len(named) > (len(_COLOURS) if has_colours else 1)
    canvas = _Canvas(max(10, width - gutter - 1), is_plain=is_plain, has_marks=has_marks)
    bounds = (_place(chart.x[0], chart), _place(chart.x[-1], chart))
    xs = [_share(_place(one, chart), *bounds) for one in chart.x]
    for index, values in enumerate(named.values()):
        ys = [_height(one, up, low, high) for one in values]
        canvas.line(index, xs, ys)
    for place in chart.borders.values():
        if place != chart.x[0]:
            canvas.column(_share(_place(place, chart), *bounds))
    text = [*wrap(chart.title, width)]
    edge = ("|", "+") if is_plain else ("│", "┤")
    for row, line in enumerate(canvas.rows(has_colours=has_colours)):
        is_tick = row % _ROWS_PER_TICK == 0
        label = labels[row] if is_tick else ""
        text.append(f"{label:>{gutter - 1}} {edge[is_tick]}{line}".rstrip())
    text.extend(_axis(chart, canvas.width, gutter, bounds, is_plain=is_plain))
    if len(named) > 1:
        names = _iter_legend(named, canvas.width, has_marks=has_marks, has_colours=has_colours)
        text.extend(" " * (gutter + 1) + one for one in names)
    return text


def _height(
    value: float | None, up: Callable[[float], float], low: float, high: float
) -> float | None:
    """The position of a value between the bounds, from 0 to 1."""
    if value is None or not math.isfinite(value):
        return value
    return _share(up(min(value, high)), up(low), up(high))


def _label(chart: Chart, height: float, extent: float) -> str:
    return _number(10**height, 10**height) if chart.is_log_y else _number(height, extent)


def _iter_legend(
    named: Mapping[str, Values], width: int, *, has_marks: bool, has_colours: bool
) -> Iterator[str]:
    """Mark or colour, name and range of each line."""
    for index, (name, values) in enumerate([*named.items()][:_MOST_NAMED]):
        finite = finite_values(values)
        extent = "nothing"
        if finite:
            low, high = min(finite), max(finite)
            extent = _number(low, high - low)
            if low != high:
                extent += f" to {_number(high, high - low)}"
        mark = _MARKS[index] if has_marks else "━━"
        mark = _coloured(mark, index) if has_colours else mark
        room = width - len(extent) - 5
        yield f"{mark} {shorten(name, max(room, 8))}: {extent}"
    if len(named) > _MOST_NAMED:
        yield f"and {len(named) - _MOST_NAMED} more{', of dots' * has_marks}"


def _coloured(text: str, index: int) -> str:
    return f"\x1b[{_COLOURS[index % len(_COLOURS)]}m{text}\x1b[0m"


@final
class _Canvas:
    """A grid of characters, each with two by four dots or one mark."""

    def __init__(self, width: int, *, is_plain: bool, has_marks: bool) -> None:
        self.width = width
        self._across, self._down = (1, 1) if has_marks else (2, 4)
        self._is_plain, self._has_marks = is_plain, has_marks
        self._cells: dict[tuple[int, int], int] = {}
        self._owners: dict[tuple[int, int], list[int]] = {}
        self._columns: set[int] = set()

    def line(self, owner: int, xs: Sequence[float], ys: Values) -> None:
        """Draw a line through points with coordinates from 0 to 1."""
        last: tuple[int, int] | None = None
        for x, y in zip(xs, ys, strict=True):
            if y is None:
                continue
            if not math.isfinite(y):
                last = None
                continue
            column = round(x * (self.width * self._across - 1))
            row = round((1 - y) * (_HEIGHT * self._down - 1))
            for dot in _iter_line_dots(last, (column, row)):
                self._put(owner, *dot)
            last = (column, row)

    def column(self, x: float) -> None:
        """Draw a vertical line behind all others."""
        self._columns.add(round(x * (self.width - 1)))

    def rows(self, *, has_colours: bool) -> Iterator[str]:
        """The cells as text."""
        for row in range(_HEIGHT):
            yield "".join(
                self._cell(column, row, has_colours=has_colours) for column in range(self.width)
            )

    def _put(self, owner: int, column: int, row: int) -> None:
        cell = (column // self._across, row // self._down)
        dot = 1 if self._has_marks else _DOTS[row % 4][column % 2]
        self._cells[cell] = self._cells.get(cell, 0) | dot
        owners = self._owners.setdefault(cell, [])
        if owner not in owners:
            owners.append(owner)

    def _cell(self, column: int, row: int, *, has_colours: bool) -> str:
        dots = self._cells.get((column, row))
        if dots is None:
            border = ":" if self._is_plain else "┆"
            return border if column in self._columns else " "
        owners = self._owners[column, row]
        owner = owners[column % len(owners)]  # lines on top of each other alternate
        letter = chr(_BRAILLE + dots)
        if self._has_marks:
            letter = _MARKS[owner] if owner < len(_MARKS) else "."
        return _coloured(letter, owner) if has_colours else letter


def _iter_line_dots(
    start: tuple[int, int] | None, end: tuple[int, int]
) -> Iterator[tuple[int, int]]:
    """The dots of a straight line, without the first dot."""
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
    """The x axis, its numbers, and the meaning of its marks."""
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
    yield from wrap(" " * (gutter + 1) + ", ".join(legend), gutter + 1 + width)


def _numbers(chart: Chart, width: int, bounds: tuple[float, float]) -> str:
    """As many numbers below the axis as fit."""
    text = [" "] * (width + 12)
    free = 0
    for place in _round_places(chart, width):
        label = f"{place:.0e}" if chart.is_log_x else _whole(place)
        column = _column(place, chart, bounds, width)
        start = max(0, min(column - len(label) // 2, width - len(label)))
        if start >= free:
            text[start : start + len(label)] = label
            free = start + len(label) + 2
    return "".join(text).rstrip()


def _round_places(chart: Chart, width: int) -> list[float]:
    first, last = chart.x[0], chart.x[-1]
    if chart.is_log_x:
        powers = range(math.ceil(math.log10(first) - 1e-9), math.floor(math.log10(last) + 1e-9) + 1)
        return [10.0**power for power in powers]
    rough = (last - first) / max(2, min(8, width // 14)) or 1
    power = 10 ** math.floor(math.log10(rough))
    factors = (1, 2, 2.5, 5, 10) if power >= 10 else (1, 2, 5, 10)  # steps are whole numbers
    step = max(1, next(power * factor for factor in factors if power * factor >= rough))
    return [step * index for index in range(math.ceil(first / step), int(last / step) + 1)]


def _column(place: float, chart: Chart, bounds: tuple[float, float], width: int) -> int:
    share = _share(_place(place, chart), *bounds)
    return min(width - 1, max(0, round(share * (width - 1))))


def _place(x: float, chart: Chart) -> float:
    return math.log10(x) if chart.is_log_x else x


def _share(value: float, low: float, high: float) -> float:
    return (value - low) / (high - low) if high > low else 0.5


def compute_bounds(chart: Chart) -> tuple[float, float]:
    """The lowest and the highest y value of the chart."""
    finite = [one for values in chart.lines.values() for one in finite_values(values)]
    low, high = min(finite, default=1.0), max(finite, default=1.0)
    if chart.top is not None:
        high = min(high, chart.top)
    if chart.is_log_y:
        return (low, high) if high > low else (low / 2, high * 2)
    low = min(low, 0.0) if low < high / 2 else low
    return (low, high) if high > low else (low - abs(low) or -1.0, high + abs(high) or 1.0)


def finite_values(values: Values) -> list[float]:
    """The values without None, NaN and infinity."""
    return [one for one in values if one is not None and math.isfinite(one)]


def merge_equal_lines(lines: Mapping[str, Values]) -> dict[str, Values]:
    """The lines by name; equal lines once, with all their names joined."""
    names: dict[tuple[float | None, ...], list[str]] = {}
    for name, values in lines.items():
        names.setdefault(tuple(values), []).append(name)
    return {", ".join(shared): values for values, shared in names.items()}


def _number(value: float, extent: float) -> str:
    """A number with enough digits to distinguish it from values ``extent`` away."""
    if not value:
        return "0"
    closeness = math.log10(abs(value) / extent) if extent > 0 else 0.0
    return f"{value:.{3 + max(0, math.floor(closeness))}g}"


def _whole(value: float) -> str:
    return f"{round(value):,}"


def format_sparkline(
    steps: Sequence[float], values: Sequence[float], *, width: int, is_plain: bool | None = None
) -> str:
    """The curve in at most ``width`` characters, each the mean of an equal part of the steps.

    ``steps`` ascend; NaN and infinity are shown as ``!``. ``is_plain`` uses ASCII only; by default
    if the encoding of standard output lacks bars.
    """
    if not len(values):
        return ""
    bars = _PLAIN_BARS if (not can_encode(_BARS) if is_plain is None else is_plain) else _BARS
    means = _means(steps, values, width)
    finite = [one for one in means if one is not None and math.isfinite(one)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    return "".join(_bar(one, low, high, bars) for one in means)


def _means(steps: Sequence[float], values: Sequence[float], width: int) -> list[float | None]:
    """The mean of each part of the steps; None for a part without values."""
    is_few = len(values) <= width
    width = min(width, len(values))
    first, last = steps[0], steps[-1]
    sums: list[list[float]] = [[] for _ in range(width)]
    for step, value in zip(steps, values, strict=True):
        share = (step - first) / (last - first) if last > first else 0.0
        # Few values get one bar each, even if the steps are not quite evenly spaced.
        place = round(share * (width - 1)) if is_few else min(width - 1, int(share * width))
        sums[place].append(value)
    return [_mean(one) for one in sums]


def _mean(values: list[float]) -> float | None:
    finite = [one for one in values if math.isfinite(one)]
    if finite:
        return math.fsum(one / len(finite) for one in finite)
    return math.nan if values else None


def _bar(value: float | None, low: float, high: float, bars: str) -> str:
    if value is None:
        return " "
    if not math.isfinite(value):
        return _NOT_A_NUMBER
    share = (value / 2 - low / 2) / (high / 2 - low / 2) if high > low else 0.0  # no overflow
    return bars[min(len(bars) - 1, int(share * len(bars)))]
