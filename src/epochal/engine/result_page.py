"""A result as a short text and as HTML for notebooks, with curves from the run's record."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from epochal.errors import RecordError
from epochal.records.metrics.points import is_probe, read_series_names
from epochal.records.secrets import hiding_secrets, iter_tree_secrets, redact
from epochal.text.formatting import format_count, format_seconds, format_value
from epochal.text.html_output import draw_svg, format_html_table, link_to_run, to_html

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from epochal.engine.result import RunResult

_MAX_METRICS = 12
_MAX_LINES = 4
_MAX_POINTS = 300


def describe_result(result: RunResult) -> str:
    """One line: status, error, best value, length and folder."""
    parts = [f"status={result.status!r}", f"reason={result.reason!r}"]
    if error := _describe_error(result).partition("\n")[0]:
        parts.append(f"error={error!r}")
    if result.best is not None:
        parts.append(f"best={format_value(result.best)}")
    parts += [f"steps={result.steps}", f"seconds={result.seconds:.1f}"]
    if result.dir is not None:
        parts.append(f"dir={str(result.dir)!r}")
    return f"RunResult({', '.join(parts)})"


def result_to_html(result: RunResult) -> str:
    """A table of status, best value, metrics, time and folder, and the curves beside it."""
    charts = "" if result.dir is None else "".join(_draw_charts(result, result.dir))
    return (
        '<div style="display:flex;flex-wrap:wrap;gap:8px 20px;align-items:flex-start">'
        f"{format_html_table(list(_iter_rows(result)))}<div>{charts}</div></div>"
    )


def _iter_rows(result: RunResult) -> Iterator[tuple[str, str]]:
    yield "status", f"<b>{to_html(result.status)}</b> ({to_html(result.reason)})"
    if error := _describe_error(result):
        yield "error", f'<span style="white-space:pre-wrap">{to_html(error)}</span>'
    if result.best is not None:
        name = monitored_metric(result.config)
        best = f"<b>{format_value(result.best)}</b>{format_spread(result, 'best')}"
        yield "best", f"{best} ({to_html(name)})" if name else best
    names = sorted(result.metrics, key=is_probe)
    for name in names[:_MAX_METRICS]:
        value = f"{format_value(result.metrics[name])}{format_spread(result, name)}"
        yield to_html(name), value
    if len(names) > _MAX_METRICS:
        yield "", f"and {len(names) - _MAX_METRICS} more in <code>metrics</code>"
    if result.steps:
        counts = format_count(result.epochs, "epoch"), format_count(result.steps, "step")
        yield "length", ", ".join(counts)
    yield "time", format_seconds(result.seconds)
    if result.dir is not None:
        yield "folder", link_to_run(result.dir)


def monitored_metric(config: Mapping[str, object]) -> str:
    """The name of the monitored metric, such as ``val/acc``; empty if the config has none."""
    spec = config.get("monitor")
    return str((spec.get("metric") if isinstance(spec, Mapping) else spec) or "").lstrip("+-")


def format_spread(result: RunResult, name: str) -> str:
    """The standard deviation over the folds, after a cross validation; empty otherwise."""
    return f" ± {format_value(result.spread[name])}" if name in result.spread else ""


def _describe_error(result: RunResult) -> str:
    """Type and message of the error, without secrets; empty without one."""
    if result.exception_type is None:
        return ""
    with hiding_secrets(iter_tree_secrets(result.config)):
        return redact(f"{result.exception_type}: {result.message}".removesuffix(": "))


def _draw_charts(result: RunResult, folder: Path) -> Iterator[str]:
    """The curves of the monitored metric and of the loss, each over all splits."""
    from epochal.records.metrics.curve_cache import zoom  # imports numpy

    with suppress(OSError, RecordError):  # a record that was deleted or damaged has no curves
        names = dict.fromkeys(read_series_names(folder)[0].values())
        monitored = monitored_metric(result.config).partition("/")[2]
        for end in dict.fromkeys(filter(None, (monitored, "loss"))):
            same = [name for name in names if name.partition("/")[2] == end]
            parts = {name: zoom(folder, name, buckets=_MAX_POINTS) for name in same[:_MAX_LINES]}
            yield draw_svg({n: (p.steps.tolist(), p.mean.tolist()) for n, p in parts.items()})
