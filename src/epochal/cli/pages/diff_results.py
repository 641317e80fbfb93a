"""Differences in the results of runs: metrics, curves, means of replicates."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from epochal.cli.pages.diff_view import BOLD, GREEN, MISSING, RED, count_differing, count_same
from epochal.records.compare.metrics import deltas
from epochal.records.compare.replicate_groups import BEST, SEED, are_replicates
from epochal.records.metrics.points import TRAIN_PREFIX
from epochal.text.escape import escape_control
from epochal.text.formatting import format_count, format_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from epochal.cli.pages.diff_view import DiffView
    from epochal.records.compare import Comparison
    from epochal.records.compare.curves import CurveComparison, Divergence
    from epochal.records.compare.metrics import MetricComparison
    from epochal.records.compare.replicate_groups import ReplicateGroup
    from epochal.records.index.replicates import MeanEstimate

_ROWS = 12
_SERIES = 3


def describe_metrics(scores: Sequence[MetricComparison], view: DiffView) -> Iterator[str]:
    """Last and best values of each metric that differs, and the differences."""
    differing = [one for one in scores if not one.is_same]
    same = count_same(len(scores) - len(differing))
    if not differing:
        yield f"metrics: nothing differs, {same}"
        return
    yield f"metrics: {count_differing(len(differing), 'metric')}, {same}"
    shown = differing[: view.cut(differing, _ROWS)]
    names = view.names
    if view.is_pair:
        header = ["metric", "A last", "B last", "delta", "A best", "B best", "delta", "B is"]
        rows = [_pair_row(one) for one in shown]
    else:
        header = ["metric", *(f"{name} last" for name in names), *(f"{n} best" for n in names)]
        rows = [[one.name, *map(_figure, (*one.last, *one.best))] for one in shown]
    for line in view.table(header, rows):
        yield _paint_verdict(line, view)
    yield from view.more(len(differing) - len(shown), "metric", "metrics")


def _pair_row(one: MetricComparison) -> list[str]:
    last, best = deltas(one.last)[1], deltas(one.best)[1]
    lasts, bests = [_figure(value) for value in one.last], [_figure(value) for value in one.best]
    is_seen = bests[0] != bests[1]  # ignore differences too small to be shown
    verdict = {True: "better", False: "worse", None: ""}[one.is_better(best) if is_seen else None]
    return [one.name, *lasts, _signed(last), *bests, _signed(best), verdict]


def _figure(value: float | None) -> str:
    return MISSING if value is None else format_value(value)


def _signed(delta: float | None) -> str:
    if delta is None:
        return ""
    return "" if delta != delta else f"{delta:+.3g}" if delta else "="


def _paint_verdict(line: str, view: DiffView) -> str:
    for word, colour in (("better", GREEN), ("worse", RED)):
        if line.endswith(f" {word}"):
            return line.removesuffix(word) + view.paint(word, colour)
    return line


def describe_curves(
    curves: Sequence[CurveComparison], tolerance: float, view: DiffView
) -> Iterator[str]:
    """Where each run diverges from the first; one line if none does."""
    if all(one.bitwise is None for one in curves):
        fewest = min(curves, key=lambda one: one.num_points)
        yield f"curves: {_describe_same(fewest)}"
        return
    yield f"curves: diverge by step {min(one.bitwise.step for one in curves if one.bitwise):,}"
    for name, one in zip(view.names[1:], curves, strict=True):
        names = (view.names[0], name)
        yield f"  {names[0]} and {name}: {_describe_same(one)}"
        if one.bitwise is not None:
            yield f"    first {_describe_point(one.bitwise, names)}"
            yield f"    {_describe_beyond_tolerance(one, tolerance, names)}"
        for letter, steps in zip(names, one.resumed, strict=True):
            if steps:
                yield f"    {letter} resumed from a checkpoint at step {', '.join(map(str, steps))}"


def _describe_same(one: CurveComparison) -> str:
    """Until which step two runs are the same."""
    uneven = format_count(one.num_uneven, "point")
    more = f"; {uneven} of training are means over different steps" if one.num_uneven else ""
    if not one.num_points:
        return f"no common points{more}"
    if one.bitwise is None:
        return f"the same bit for bit at {format_count(one.num_points, 'point')}{more}"
    if one.same_until is None:
        return f"different from the first point on{more}"
    return f"the same bit for bit until step {one.same_until:,}{more}"


def _describe_beyond_tolerance(
    one: CurveComparison, tolerance: float, names: tuple[str, str]
) -> str:
    """From which step on two runs differ by more than the tolerance."""
    close = f"{100 * tolerance:.3g} %"
    if one.beyond is None:
        return f"never by more than {close}"
    if one.beyond == one.bitwise:
        return f"by more than {close} at once"
    return f"by more than {close} {_describe_point(one.beyond, names)}"


def _describe_point(one: Divergence, names: tuple[str, str]) -> str:
    """Which metrics differ at a step, with the values of the first."""
    first, *others = map(escape_control, one.names)
    pairs = zip(names, one.values, strict=True)
    values = ", ".join(f"{name} {_precise(value, one.values)}" for name, value in pairs)
    also = f"; also {', '.join(others[:_SERIES])}" if others else ""
    rest = len(others) - _SERIES
    return f"by step {one.step:,}: {first} ({values}){also}{f' and {rest} more' * (rest > 0)}"


def _precise(value: float, values: tuple[float, float]) -> str:
    """A value with enough digits to distinguish it from the other."""
    for digits in range(4, 17):
        if len({f"{one:.{digits}g}" for one in values}) > 1:
            return f"{value:.{digits}g}"
    return repr(value)


def describe_replicates(found: Comparison, view: DiffView) -> Iterator[str]:
    """The means over the replicates of each run, if there are any."""
    groups = [group for group in found.groups if group is not None]
    rows = list(_mean_rows(groups))
    if len({str(record.run.get("monitor")) for record in found.records}) > 1:
        rows = [row for row in rows if row[0] != BEST]  # best values of different metrics
    has_replicates = any(len(group.runs) > 1 for group in groups)
    if not rows or not has_replicates or len(groups) < len(found.records):
        return
    what = "means over runs that"
    names = [f"{name} ({len(one.runs)})" for name, one in zip(view.names, groups, strict=True)]
    if are_replicates(groups):
        names = [f"mean of {len(groups[0].runs)}"]
        rows = [row[:2] for row in rows]
        if found.count("seed") and not found.count("params"):
            what = "they"
    yield from ("", view.paint(f"replicates: {what} differ only by seed", BOLD))
    once = {group.key: group for group in groups}.values()
    shown = rows[: view.cut(rows, _ROWS)]
    yield from view.table(("mean ± 95 % interval", *names), shown)
    yield from view.more(len(rows) - len(shown), "metric", "metrics")
    if left_out := sum((Counter(one.left_out) for one in once), Counter()):
        runs = format_count(left_out.total(), "run")
        again = left_out.pop(SEED, 0)
        why = [f"{count} {status}" for status, count in sorted(left_out.items())]
        why += [f"{again} with a repeated seed"] if again else []
        yield f"  {runs} left out: {', '.join(why)}"


def _mean_rows(groups: Sequence[ReplicateGroup]) -> Iterator[list[str]]:
    """Best values first, then the metrics of any group, training metrics last."""
    names = dict.fromkeys(name for group in groups for name in group.means)
    for name in sorted(names, key=lambda name: (name != BEST, name.startswith(TRAIN_PREFIX))):
        yield [name, *(_describe_mean(group.means.get(name)) for group in groups)]


def _describe_mean(mean: MeanEstimate | None) -> str:
    return MISSING if mean is None else str(mean)
