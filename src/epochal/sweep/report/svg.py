"""The figures of a sweep as SVG; every mark says what it is when the mouse is over it."""

from __future__ import annotations

import math
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, final

from epochal.sweep.report.axis import Axis, axis_of_numbers, shorten, show_value
from epochal.text.formatting import format_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from epochal.sweep.report.figures import Figures, Mark

_WIDTH, _HEIGHT = 440.0, 260.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, 16.0, 14.0, 42.0
_SMALL_WIDTH, _SMALL_HEIGHT = 310.0, 210.0
_BAR = 26.0
_CHARACTER = 6.8
_MAX_TICK = 20


def describe_mark(mark: Mark, figures: Figures) -> str:
    """A trial in a few lines."""
    metrics = [one.metric for one in figures.settings.objectives]
    results = (
        f"{metric} {format_value(value)}"
        for metric, value in zip(metrics, mark.objectives, strict=False)
    )
    values = (f"{key} = {show_value(value)}" for key, value in mark.values.items())
    return "\n".join([f"trial {mark.number}, {mark.state}", *results, *values])


def draw_history(figures: Figures) -> str:
    """The result of each trial, and the best so far."""
    frame = _Frame(_WIDTH, _HEIGHT, _numbers_axis(figures), figures.objective)
    parts = list(frame.draw())
    last = figures.marks[-1].number if figures.marks else 0
    points: list[tuple[float, float]] = []
    for number, value in (*figures.best_so_far, *_last_of(figures, last)):
        x, y = frame.x(number), frame.y(value)
        if x is not None and y is not None:
            points += [(x, points[-1][1])] if points else []
            points.append((x, y))
    if points:
        parts.append(f'<polyline class="best" points="{_points(points)}"/>')
    for mark in figures.marks:
        x = frame.x(mark.number)
        y = frame.y(mark.objectives[0]) if mark.objectives else None
        if x is None:
            continue
        if y is not None:
            parts.append(_circle(x, y, mark, figures))
        elif mark.state == "failed":
            parts.append(_cross(x, frame.bottom - 6, mark, figures))
    return frame.wrap(parts)


def _last_of(figures: Figures, last: int) -> Iterable[tuple[int, float]]:
    return [(last, figures.best_so_far[-1][1])] if figures.best_so_far else []


def _numbers_axis(figures: Figures) -> Axis:
    last = figures.marks[-1].number if figures.marks else 0
    return Axis("trial", 0, max(last, 1))


def draw_importance(figures: Figures) -> str:
    """A bar for each parameter."""
    left, height = 150.0, _BAR * len(figures.importance) + 34
    width = _WIDTH - left - 50
    parts = []
    for row, (key, share) in enumerate(figures.importance.items()):
        y = 8 + row * _BAR
        text = f"{key} explains {share:.0%} of the variance"
        parts += [
            f'<text class="label" x="{left - 8}" y="{y + 14}" text-anchor="end">{_label(key, 21)}'
            f"<title>{escape(key)}</title></text>",
            f'<rect class="bar" x="{left}" y="{y + 2}" width="{max(width * share, 1):.1f}" '
            f'height="{_BAR - 9}" rx="2"><title>{escape(text)}</title></rect>',
            f'<text class="tick" x="{left + width * share + 6:.1f}" y="{y + 14}">{share:.0%}'
            "</text>",
        ]
    y = height - 18
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = left + width * tick
        parts.insert(0, f'<line class="grid" x1="{x}" y1="4" x2="{x}" y2="{y}"/>')
        parts.append(
            f'<text class="tick" x="{x}" y="{y + 14}" text-anchor="middle">{tick:.0%}</text>'
        )
    return _svg(_WIDTH, height, parts)


def draw_slices(figures: Figures) -> Iterator[str]:
    """The results over the values of each parameter, one small figure each."""
    for axis in figures.axes:
        frame = _Frame(_SMALL_WIDTH, _SMALL_HEIGHT, axis, figures.objective)
        parts = list(frame.draw())
        for mark in figures.marks:
            if not mark.objectives or axis.label not in mark.values:
                continue
            x, y = frame.x(mark.values[axis.label]), frame.y(mark.objectives[0])
            if x is not None and y is not None:
                jitter = ((mark.number * 0.618) % 1 - 0.5) * 14 if axis.choices else 0.0
                parts.append(_circle(x + jitter, y, mark, figures, radius=3.2))
        yield frame.wrap(parts)


def draw_parallel(figures: Figures) -> str:
    """A line for each trial through its values, and its result at the right."""
    axes = figures.parallel_axes
    width = max(1280.0, 150.0 * len(axes))
    top, bottom, left, right = 34.0, 320.0, 70.0, 90.0
    step = (width - left - right) / max(len(axes) - 1, 1)

    def y_of(place: float) -> float:
        return bottom - place * (bottom - top)

    parts = []
    for mark in figures.lines:
        if not mark.objectives:
            continue
        # A key that the trial does not set is drawn below the axes.
        points = [
            (left + step * index, bottom + 14 if place is None else y_of(place))
            for index, place in enumerate(figures.place_on_axes(mark))
        ]
        title = escape(describe_mark(mark, figures))
        kind = "line" if mark.state == "finished" else "line faint"
        parts.append(
            f'<polyline class="{kind}" style="stroke:{mix_colour(mark.share)}" '
            f'points="{_points(points)}"><title>{title}</title></polyline>'
        )
    for index, axis in enumerate(axes):
        x = left + step * index
        parts.append(f'<line class="axis" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}"/>')
        parts.append(
            f'<text class="label" x="{x:.1f}" y="18" text-anchor="middle">{_label(axis.label, 22)}'
            f"<title>{escape(axis.label)}</title></text>"
        )
        for place, text in axis.ticks():
            y = y_of(place)
            parts.append(
                f'<line class="axis" x1="{x - 3:.1f}" y1="{y:.1f}" x2="{x:.1f}" y2="{y:.1f}"/>'
            )
            parts.append(
                f'<text class="tick halo" x="{x + 5:.1f}" y="{y + 4:.1f}">'
                f"{escape(shorten(text, _MAX_TICK))}</text>"
            )
    return _svg(width, bottom + 24, parts, "wide")


def draw_curves(figures: Figures) -> str:
    """The objective during each trial; pruned trials are faint."""
    shown = [one for one in figures.lines if len(one.curve) > 1]
    ends = [one.curve[-1] for one in shown]
    inner = [value for one in shown for value in one.curve if math.isfinite(value)]
    if len(inner) > 20:
        ordered = sorted(inner)
        inner = [*ordered[len(ordered) // 50 : len(ordered) - len(ordered) // 50], *ends]
    metric = figures.settings.objectives[0].metric
    length = max((len(one.curve) for one in shown), default=1)
    steps = axis_of_numbers("evaluation", [1, length])
    frame = _Frame(_WIDTH, _HEIGHT, steps, axis_of_numbers(metric, inner))
    parts = list(frame.draw())
    for mark in shown:
        places = [(frame.x(index + 1), frame.y(value)) for index, value in enumerate(mark.curve)]
        points = [(x, y) for x, y in places if x is not None and y is not None]
        kind = "line" if mark.state == "finished" else "line faint"
        colour = mix_colour(mark.share)
        title = escape(describe_mark(mark, figures))
        parts.append(
            f'<polyline class="{kind}" style="stroke:{colour}" points="{_points(points)}">'
            f"<title>{title}</title></polyline>"
        )
        if mark.state == "pruned" and points:
            x, y = points[-1]
            parts.append(
                f'<circle class="end" style="stroke:{colour}" cx="{x:.1f}" cy="{y:.1f}" r="2.5">'
                f"<title>{title}</title></circle>"
            )
    return frame.wrap(parts)


def draw_objectives(figures: Figures) -> str:
    """The first two objectives of each trial; those on the Pareto front are joined."""
    known = [one for one in figures.marks if len(one.objectives) > 1]
    names = [one.metric for one in figures.settings.objectives]
    axes = [axis_of_numbers(names[i], [one.objectives[i] for one in known]) for i in (0, 1)]
    frame = _Frame(_WIDTH, _HEIGHT, axes[0], axes[1])
    parts = list(frame.draw())
    front = sorted((one.objectives[0], one.objectives[1]) for one in figures.best)
    places = [(frame.x(first), frame.y(second)) for first, second in front]
    joined = [(x, y) for x, y in places if x is not None and y is not None]
    if len(names) == 2:
        parts.append(f'<polyline class="best" points="{_points(joined)}"/>')
    for mark in known:
        x, y = frame.x(mark.objectives[0]), frame.y(mark.objectives[1])
        if x is not None and y is not None:
            parts.append(_circle(x, y, mark, figures))
    return frame.wrap(parts)


@final
class _Frame:
    """The axes of a figure."""

    def __init__(self, width: float, height: float, horizontal: Axis, vertical: Axis) -> None:
        self._width, self._height = width, height
        self._horizontal, self._vertical = horizontal, vertical
        self.bottom = height - _BOTTOM

    def x(self, value: object) -> float | None:
        """The horizontal place of a value."""
        place = self._horizontal.place(value)
        return None if place is None else self._x_at(place)

    def y(self, value: object) -> float | None:
        """The vertical place of a value."""
        place = self._vertical.place(value)
        return None if place is None else self._y_at(place)

    def _x_at(self, place: float) -> float:
        return _LEFT + place * (self._width - _LEFT - _RIGHT)

    def _y_at(self, place: float) -> float:
        return self.bottom - place * (self.bottom - _TOP)

    def draw(self) -> Iterator[str]:
        """Grid, ticks and labels."""
        right = self._width - _RIGHT
        for place, text in self._vertical.ticks():
            y = self._y_at(place)
            yield f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>'
            yield (
                f'<text class="tick" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">'
                f"{escape(text)}</text>"
            )
        ticks = self._horizontal.ticks()
        if self._horizontal.choices:
            most = max(3, int((right - _LEFT) / (_CHARACTER * len(ticks))) - 1)
            ticks = [(place, shorten(text, most)) for place, text in ticks]
        for place, text in _without_overlap(ticks, right - _LEFT):
            x = self._x_at(place)
            yield f'<line class="grid" x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{self.bottom}"/>'
            yield (
                f'<text class="tick" x="{x:.1f}" y="{self.bottom + 15}" text-anchor="middle">'
                f"{escape(text)}</text>"
            )
        middle = (_LEFT + right) / 2
        label = _label(self._horizontal.label, 40)
        yield (
            f'<text class="label" x="{middle}" y="{self._height - 8}" text-anchor="middle">{label}'
            "</text>"
        )
        y = (self.bottom + _TOP) / 2
        yield (
            f'<text class="label" x="14" y="{y}" text-anchor="middle" '
            f'transform="rotate(-90 14 {y})">{_label(self._vertical.label, 28)}</text>'
        )

    def wrap(self, parts: Iterable[str]) -> str:
        """The whole figure."""
        return _svg(self._width, self._height, parts)


def _svg(width: float, height: float, parts: Iterable[str], kind: str = "") -> str:
    body = "\n".join(parts)
    small = " small" if width < _WIDTH else ""
    return (
        f'<svg class="{kind}{small}" viewBox="0 0 {width:g} {height:g}" '
        f'xmlns="http://www.w3.org/2000/svg" role="img">\n{body}\n</svg>'
    )


def _circle(x: float, y: float, mark: Mark, figures: Figures, *, radius: float = 4.0) -> str:
    colour = mix_colour(mark.share)
    is_full = mark.state == "finished"
    style = f"fill:{colour}" if is_full else f"fill:none;stroke:{colour};stroke-width:1.4"
    title = escape(describe_mark(mark, figures))
    return (
        f'<circle class="mark" style="{style}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}">'
        f"<title>{title}</title></circle>"
    )


def _cross(x: float, y: float, mark: Mark, figures: Figures) -> str:
    title = escape(describe_mark(mark, figures))
    return (
        f'<path class="failed" d="M{x - 3.5:.1f} {y - 3.5:.1f}l7 7m0 -7l-7 7">'
        f"<title>{title}</title></path>"
    )


def mix_colour(share: float) -> str:
    """From grey blue, the worst, to orange, the best; readable on light and dark."""
    if math.isnan(share):
        return "#888888"
    stops = ((0.0, (120, 140, 165)), (0.6, (50, 120, 200)), (1.0, (225, 105, 20)))
    for (low, first), (high, second) in pairwise(stops):
        if share <= high:
            part = (share - low) / (high - low)
            mixed = (round(a + part * (b - a)) for a, b in zip(first, second, strict=True))
            return "#" + "".join(f"{one:02x}" for one in mixed)
    return "#e16914"


def _points(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _label(text: str, most: int) -> str:
    return escape(text if len(text) <= most else f"…{text[1 - most :]}")


def _without_overlap(
    ticks: Iterable[tuple[float, str]], width: float
) -> Iterator[tuple[float, str]]:
    end = -math.inf
    for place, text in ticks:
        half = _CHARACTER / 2 * len(text)
        if place * width - half > end:
            yield place, text
            end = place * width + half + 6
