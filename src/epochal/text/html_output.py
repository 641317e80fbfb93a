"""Pieces of HTML for notebooks: tables, links to runs, and small charts as SVG."""

from __future__ import annotations

import math
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from epochal.text.escape import escape_control
from epochal.text.formatting import format_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Line = tuple[Sequence[float], Sequence[float]]

_COLOURS = ("#3b82c4", "#e07b27", "#3a9d5d", "#a35bc2")  # readable on white and on black
_WIDTH, _HEIGHT = 300, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 8, 26, 20
_CELL = "text-align:left;vertical-align:top;padding:2px 12px 2px 0"
_NO_WRAP = "white-space:nowrap"
_NAME = f"{_NO_WRAP};opacity:.65"
_FONT = "var(--jp-ui-font-family,sans-serif)"


def to_html(text: str) -> str:
    """A text that HTML shows as it is, with control characters escaped."""
    return escape(escape_control(text))


def link_to_run(path: Path, text: str = "") -> str:
    """A link to the folder of a run; relative below the working directory, as notebooks need it."""
    whole, here = path.absolute() / "README.md", Path.cwd()  # JupyterLab opens files only
    is_near = whole.is_relative_to(here)
    target = quote(whole.relative_to(here).as_posix()) if is_near else whole.as_uri()
    return f'<a href="{target}" target="_blank">{to_html(text or str(path))}</a>'


def format_html_table(rows: Sequence[Sequence[str]], header: Sequence[str] = ()) -> str:
    """A table of cells that are HTML already; without a header, the first column has the names.

    Only the last column is wrapped.
    """
    lines = [_row(header, "th", _NO_WRAP)] if header else []
    lines += [_row(row, "td", _NO_WRAP if header else _NAME) for row in rows]
    return f'<table style="border:none;margin:0">{"".join(lines)}</table>'


def _row(cells: Sequence[str], tag: str, style: str) -> str:
    """A row whose cells have a style, except the last one."""
    styles = [*(f"{_CELL};{style}" for _ in cells[1:]), _CELL]
    parts = (
        f'<{tag} style="{style}">{cell}</{tag}>' for style, cell in zip(styles, cells, strict=True)
    )
    return f"<tr>{''.join(parts)}</tr>"


def draw_svg(lines: Mapping[str, Line]) -> str:
    """A chart of lines by name, each with steps and values; empty without two finite points."""
    xs = [x for steps, _ in lines.values() for x in steps]
    ys = [y for _, values in lines.values() for y in values if math.isfinite(y)]
    if len(ys) < 2 or min(xs) == max(xs):
        return ""
    ends = min(xs), max(xs), min(ys), max(ys)
    drawn = "".join(
        _draw_line(line, ends, _COLOURS[i % len(_COLOURS)]) for i, line in enumerate(lines.values())
    )
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'style="font:11px {_FONT};max-width:100%">'
        f"{_draw_legend(lines)}{''.join(_draw_axes(ends))}{drawn}</svg>"
    )


def _draw_legend(lines: Mapping[str, Line]) -> str:
    names = (
        f'<tspan fill="{_COLOURS[i % len(_COLOURS)]}" dx="{10 * bool(i)}">{to_html(name)}</tspan>'
        for i, name in enumerate(lines)
    )
    return f'<text x="{_LEFT}" y="14" font-weight="600">{"".join(names)}</text>'


def _draw_axes(ends: tuple[float, float, float, float]) -> Iterator[str]:
    first, last, low, high = ends
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    yield (
        f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="currentColor" '
        'stroke-opacity=".35"/><g fill="currentColor" fill-opacity=".65">'
    )
    for value, y in ((high, _TOP + 4), (low, bottom)):
        yield f'<text x="{_LEFT - 6}" y="{y}" text-anchor="end">{format_value(float(value))}</text>'
    for step, x, anchor in ((first, _LEFT, "start"), (last, right, "end")):
        shown = f"{step:,.0f}" if anchor == "start" else f"step {step:,.0f}"
        yield f'<text x="{x}" y="{_HEIGHT - 5}" text-anchor="{anchor}">{shown}</text>'
    yield "</g>"


def _draw_line(line: Line, ends: tuple[float, float, float, float], colour: str) -> str:
    """The line with a gap at NaN and infinity; a point alone is a dot."""
    first, last, low, high = ends
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    path, is_started = [], False
    for x, y in zip(*line, strict=True):
        if not math.isfinite(y):
            is_started = False
            continue
        across = _LEFT + width * (x - first) / (last - first)
        down = _TOP + height * ((high - y) / (high - low) if high > low else 0.5)
        # A round cap shows a line of no length as a dot.
        path.append(f"L{across:.1f} {down:.1f}" if is_started else f"M{across:.1f} {down:.1f}h0")
        is_started = True
    return (
        f'<path d="{"".join(path)}" fill="none" stroke="{colour}" stroke-width="1.6" '
        'stroke-linecap="round" stroke-linejoin="round"/>'
    )
