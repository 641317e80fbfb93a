"""The report of a sweep as one HTML file that needs no network."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from epochal.sweep.report import svg
from epochal.sweep.report.axis import show_value
from epochal.text.formatting import format_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.sweep.report.figures import Figures

_STYLE = """
:root { color-scheme: light dark; --back: #ffffff; --text: #1c2430; --soft: #5c6773;
  --grid: #e3e7ec; --box: #f6f8fa; --best: #e16914; }
@media (prefers-color-scheme: dark) { :root { --back: #14181d; --text: #e4e8ee; --soft: #9aa5b1;
  --grid: #2b323b; --box: #1c2229; --best: #f08a3c; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 28px 20px 60px; max-width: 1360px; background: var(--back);
  color: var(--text); font: 15px/1.5 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
h1 { font-size: 22px; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 16px; margin: 0 0 2px; }
p { margin: 0 0 8px; color: var(--soft); }
section { background: var(--box); border: 1px solid var(--grid); border-radius: 8px;
  padding: 14px 16px; margin-top: 16px; min-width: 0; }
.few { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 390px), 1fr));
  gap: 0 16px; }
.few.two { grid-template-columns: repeat(auto-fit, minmax(min(100%, 520px), 1fr)); }
.many { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 280px), 1fr));
  gap: 8px; }
.many > svg { max-width: 440px; }
.scroll { overflow-x: auto; }
svg { display: block; width: 100%; height: auto; }
svg.wide { min-width: 900px; }
svg text { font: 12px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: var(--soft); }
svg.small text { font-size: 11px; }
svg .label { fill: var(--text); }
svg .halo { paint-order: stroke; stroke: var(--box); stroke-width: 3px; }
.grid { stroke: var(--grid); }
.axis { stroke: var(--soft); }
.best { fill: none; stroke: var(--best); stroke-width: 2; }
.line { fill: none; stroke-width: 1.4; opacity: 0.75; }
.faint { opacity: 0.25; }
.line:hover { stroke-width: 3.5; opacity: 1; }
.mark { opacity: 0.9; }
.mark:hover { stroke: var(--text); stroke-width: 2; }
.end { fill: none; opacity: 0.6; }
.bar { fill: #3278c8; }
.failed { fill: none; stroke: #d03b3b; stroke-width: 1.8; }
table { border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 4px 16px 4px 0; border-bottom: 1px solid var(--grid);
  white-space: nowrap; }
th { font-weight: 600; color: var(--soft); }
"""


def render_html(figures: Figures) -> str:
    """The whole page."""
    body = "\n".join(_render_sections(figures))
    title = escape(figures.title)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{title}</h1>\n<p>{escape(_describe(figures))}</p>\n{body}\n</body>\n</html>\n"
    )


def _describe(figures: Figures) -> str:
    settings = figures.settings
    goals = ", ".join(str(one) for one in settings.objectives)
    pruner = "" if settings.pruner is None else f", pruned by {settings.pruner.type}"
    return f"{figures.counts}; {settings.method} by {goals}{pruner}"


def _render_sections(figures: Figures) -> Iterator[str]:
    if figures.best:
        yield _section(
            "Best trials", _describe_best(figures), f'<div class="scroll">{_table(figures)}</div>'
        )
    few = list(_render_few(figures))
    kind = "few" if len(few) == 3 else "few two"
    yield f'<div class="{kind}">{"".join(few)}</div>'
    slices = "\n".join(svg.draw_slices(figures))
    if slices:
        note = "The most important parameter first; results far off are at the edge."
        yield _section("Results by parameter", note, f'<div class="many">{slices}</div>')
        note = "A line for each trial, orange is best; what a trial does not set is at the foot."
        parallel = f'<div class="scroll">{svg.draw_parallel(figures)}</div>'
        yield _section("Parallel coordinates", note, parallel)


def _render_few(figures: Figures) -> Iterator[str]:
    if len(figures.settings.objectives) > 1:
        note = "The line joins the trials that nothing dominates."
        yield _section("Objectives", note, svg.draw_objectives(figures))
    note = "Filled: finished; hollow: pruned; red: failed. The line is the best so far."
    yield _section("History", note, svg.draw_history(figures))
    if any(len(one.curve) > 1 for one in figures.marks):
        note = "The objective at each evaluation; pruned trials are faint."
        yield _section("Curves", note, svg.draw_curves(figures))
    if figures.importance:
        note = "Share of the variance of the trials' ranks that each parameter explains alone."
        yield _section("Importance", note, svg.draw_importance(figures))


def _section(title: str, note: str, content: str) -> str:
    return f"<section>\n<h2>{escape(title)}</h2>\n<p>{escape(note)}</p>\n{content}\n</section>"


def _describe_best(figures: Figures) -> str:
    if len(figures.settings.objectives) > 1:
        return "Trials that no other trial dominates."
    return f"The best {len(figures.best)} of the finished trials."


def _table(figures: Figures) -> str:
    metrics = [one.metric for one in figures.settings.objectives]
    keys = [axis.label for axis in figures.axes]
    rows = [
        "".join(f"<th>{escape(name)}</th>" for name in ("trial", *metrics, *keys)),
        *(
            "".join(
                f"<td>{escape(cell)}</td>"
                for cell in (
                    str(one.number),
                    *(format_value(value) for value in one.objectives),
                    *(show_value(one.values[key]) if key in one.values else "" for key in keys),
                )
            )
            for one in figures.best
        ),
    ]
    return "<table>" + "".join(f"<tr>{row}</tr>\n" for row in rows) + "</table>"
