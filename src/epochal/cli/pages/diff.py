"""The page of ``epochal diff``: the runs, a summary, then each section."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from dataclasses import dataclass
from string import ascii_uppercase
from typing import TYPE_CHECKING, final

from epochal.cli.draw.text_table import format_table
from epochal.records.compare import SECTIONS, describe_differences
from epochal.records.compare.metrics import deltas
from epochal.records.compare.replicate_groups import BEST, SEED, are_replicates
from epochal.records.folder.reader import seconds_of, step_of, tag_of
from epochal.records.metrics.points import TRAIN_PREFIX
from epochal.text.command import epochal_command
from epochal.text.escape import escape_control
from epochal.text.formatting import format_count, format_seconds, format_value
from epochal.text.terminal import supports_colours, wrap

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from epochal.records.compare import Comparison
    from epochal.records.compare.code import CodeComparison, FileDifference, FileVersion
    from epochal.records.compare.curves import CurveComparison, Divergence
    from epochal.records.compare.difference import Difference, RunValue, SectionComparison
    from epochal.records.compare.metrics import MetricComparison
    from epochal.records.compare.replicate_groups import ReplicateGroup
    from epochal.records.folder.reader import RunRecord

_UNEXPLAINED = "no difference explains the curves"
PLAIN, BOLD, RED, GREEN, CYAN = 0, 1, 31, 32, 36
MISSING = "-"
"""Shown where a run has no value."""

_FACT_ROWS = 16
_LINES = 60
_OWN_FILES = 3
_CELL = 36
_COLOURS = {"+": GREEN, "-": RED, "@": CYAN}
_NOUNS = {
    "params": ("parameters", "parameter"),
    "seed": ("seed", "seed"),
    "packages": ("packages", "package"),
    "hardware": ("hardware", "fact"),
    "environment": ("environment", "variable"),
    "data": ("data", "fact"),
}
_SOURCES = {
    "snapshot": "",
    "imports": "; only digests of imported files are known",
    "nothing": "; no code was recorded",
}
_METRIC_ROWS = 12
_SERIES = 3


def describe_comparison(
    found: Comparison,
    sections: Sequence[str] = SECTIONS,
    *,
    words: Sequence[str] = (),
    has_all: bool = False,
) -> Iterator[str]:
    """The lines that show a comparison; ``words`` are the runs as typed, for hints."""
    view = DiffView(
        names=tuple(_letter(place) for place in range(len(found.records))),
        words=tuple(words or (one.summary.id for one in found.records)),
        has_all=has_all,
        has_colours=supports_colours(),
    )
    rows = [(name, *_head(one)) for name, one in zip(view.names, found.records, strict=True)]
    yield format_table(("", "run", "tag", "status", "steps", "time", "best"), rows)
    yield ""
    yield from wrap(view.paint(describe_differences(found, sections), BOLD))
    parts = {name: list(_describe_section(found, name, view)) for name in sections}
    for name, (first, *others) in parts.items():
        if others:
            yield from ("", *wrap(view.paint(first, BOLD)))
            # Code is not wrapped, so that it can be copied.
            yield from others if name == "code" else _wrap_all(others)
    same = [first for first, *others in parts.values() if not others]
    yield from ("", *_wrap_all(same)) if same else ()
    if "metrics" in sections:
        yield from _wrap_all(describe_replicates(found, view))
    if "curves" in sections and found.is_same_but_for_results:
        yield ""
        yield from wrap(f"{_UNEXPLAINED}: try `{epochal_command()} check FILE --repro`")


def _wrap_all(lines: Iterable[str]) -> Iterator[str]:
    return (part for line in lines for part in wrap(line))


def _letter(place: int) -> str:
    return ascii_uppercase[place] if place < len(ascii_uppercase) else f"R{place + 1}"


def _head(record: RunRecord) -> tuple[str, ...]:
    summary, seconds = record.summary, seconds_of(record)
    return (
        summary.id,
        tag_of(record),
        summary.status,
        str(step_of(record)),
        "" if seconds is None else format_seconds(seconds),
        format_value(record.result.get("best")),
    )


def _describe_section(found: Comparison, section: str, view: DiffView) -> Iterator[str]:
    """The lines of one section; one line if nothing differs."""
    if section == "code":
        return describe_code(found.code, view)
    if section == "metrics":
        return describe_metrics(found.metrics, view)
    if section == "curves":
        return describe_curves(found.curves, found.tolerance, view)
    return describe_values(section, getattr(found, section), view)


@final
@dataclass(frozen=True, kw_only=True)
class DiffView:
    """Settings and helpers for the lines of a comparison."""

    names: tuple[str, ...]
    """A letter for each run."""

    words: tuple[str, ...]
    """The runs as typed."""

    has_all: bool = False
    """Whether everything is shown in full."""

    has_colours: bool = False

    @property
    def is_pair(self) -> bool:
        """Whether there are two runs, which leaves room for more columns."""
        return len(self.names) == 2

    def paint(self, text: str, colour: int) -> str:
        """The text in a colour if colours are shown, with control characters escaped."""
        clean = escape_control(text)
        return f"\x1b[{colour}m{clean}\x1b[0m" if self.has_colours and colour else clean

    def cut(self, rows: Sequence[object], most: int) -> int:
        """How many rows to show."""
        return len(rows) if self.has_all else min(len(rows), most)

    def more(self, count: int, noun: str, section: str) -> Iterator[str]:
        """A line with the command that shows the hidden rows, if any."""
        if count > 0:
            yield f"  {count:,} more {noun}{'s' * (count != 1)}: `{self.again(section)}`"

    def again(self, section: str) -> str:
        """The command that shows all of a section."""
        return f"{epochal_command()} diff {shlex.join(self.words)} --only {section} --all"

    def table(self, header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
        """The lines of a table, indented."""
        indented = [[f"  {first}", *others] for first, *others in [[*header], *rows]]
        yield from format_table(indented[0], indented[1:]).split("\n")


def count_same(count: int) -> str:
    """``57 are the same``, or ``1 is the same``."""
    return f"{count:,} {'is' if count == 1 else 'are'} the same"


def count_differing(count: int, noun: str) -> str:
    """``2 files differ``, or ``1 file differs``."""
    return f"{format_count(count, noun)} differ{'s' * (count == 1)}"


def describe_values(section: str, facts: SectionComparison, view: DiffView) -> Iterator[str]:
    """The differing names with the value in each run; one line if nothing differs."""
    title, noun = _NOUNS[section]
    major = [one for one in facts.differences if view.has_all or not one.is_minor]
    num_minor = len(facts.differences) - len(major)
    if len(view.names) - len(facts.unknown) < 2:
        yield f"{title}: unknown, {_join(facts.unknown, view)} recorded none"
        return
    unknown = f"; {_join(facts.unknown, view)} recorded none" if facts.unknown else ""
    differ = count_differing(len(major), noun) if major else "nothing differs"
    if section == "seed":
        yield f"seed: {'not the same' if major else 'the same'}{unknown}"
    else:
        yield f"{title}: {differ}, {count_same(facts.num_same)}{unknown}"
    shown = major[: view.cut(major, _FACT_ROWS)]
    if shown:
        has_places = view.is_pair and any(s and s.where for one in shown for s in one.sides)
        places = [f"{name} set by" for name in view.names] if has_places else []
        rows = [_fact_row(one, view, has_places) for one in shown]
        yield from view.table((noun, *view.names, *places), rows)
    yield from view.more(len(major) - len(shown), noun, section)
    if num_minor:
        which = f"{format_count(num_minor, 'default')} that only some runs have"
        yield f"  {which}: `{view.again(section)}`"


def _join(places: Iterable[int], view: DiffView) -> str:
    return " and ".join(view.names[place] for place in places)


def _fact_row(one: Difference, view: DiffView, has_places: bool) -> list[str]:
    places = [MISSING if side is None else side.where for side in one.sides]
    return [one.key, *(_cell(side, view) for side in one.sides), *(places if has_places else ())]


def _cell(side: RunValue | None, view: DiffView) -> str:
    text = MISSING if side is None else format_config_value(side.value)
    return text if view.has_all or len(text) <= _CELL else f"{text[: _CELL - 1]}…"


def format_config_value(value: object) -> str:
    """A value as written in a config."""
    if isinstance(value, str):
        return value or '""'
    return repr(value) if isinstance(value, float) else json.dumps(value, default=str)


def describe_code(code: CodeComparison, view: DiffView) -> Iterator[str]:
    """The files that differ and, for two runs, their diff; one line if nothing differs."""
    known = _SOURCES[code.source]
    if code.source == "nothing":
        yield "code: unknown, one of the runs recorded none"
    elif not code.files:
        what = "only Epochal itself differs" if code.epochal else "nothing differs"
        yield f"code: {what}, {count_same(code.num_same)}{known}"
    else:
        differ = count_differing(len(code.files), "file")
        yield f"code: {differ}, {count_same(code.num_same)}{known}"
    if code.epochal:
        yield f"  Epochal itself: {_by_run(code.epochal, view)}{_own_files(code, view)}"
    if code.files or code.epochal or code.source == "nothing":
        yield from (_describe_git(one, view) for one in code.git.differences)
    shown = code.files[: view.cut(code.files, _FACT_ROWS)]
    if shown:
        header = ("file", "", "lines") if view.is_pair else ("file", *view.names)
        yield from view.table(header, [_file_row(one, view) for one in shown])
    yield from view.more(len(code.files) - len(shown), "file", "code")
    yield from _describe_lines([line for one in code.files for line in one.lines], view)


def _own_files(code: CodeComparison, view: DiffView) -> str:
    """The files of Epochal that differ; only the first few unless all are shown."""
    paths = code.epochal_files
    shown = paths[: view.cut(paths, _OWN_FILES)]
    more = f" and {len(paths) - len(shown)} more" if len(paths) > len(shown) else ""
    return f"; {escape_control(', '.join(shown))}{more}" if paths else ""


def _describe_lines(lines: list[str], view: DiffView) -> Iterator[str]:
    count = view.cut(lines, _LINES)
    for line in lines[:count]:
        if line.startswith(("+++ ", "--- ")):
            yield view.paint(f"  {line}", BOLD)
        else:
            yield view.paint(f"  {line}", _COLOURS.get(line[:1], PLAIN))
    yield from view.more(len(lines) - count, "line", "code")


def _describe_git(one: Difference, view: DiffView) -> str:
    values = [MISSING if side is None else format_config_value(side.value) for side in one.sides]
    if one.key == "commit":
        values = [value[:9] for value in values]
    return f"  git {one.key}: {_by_run(values, view)}"


def _by_run(values: tuple[str, ...] | list[str], view: DiffView) -> str:
    return ", ".join(f"{a} {escape_control(b)}" for a, b in zip(view.names, values, strict=True))


def _file_row(one: FileDifference, view: DiffView) -> tuple[str, ...]:
    if not view.is_pair:
        return (one.path, *(MISSING if each is None else each.digest for each in one.versions))
    before, after = one.versions
    kind = "changed" if before and after else f"only in {view.names[0 if before else 1]}"
    if not one.note:
        return (one.path, kind, f"+{one.added} -{one.removed}")
    versions = " -> ".join(_describe_version(each) for each in (before, after) if each)
    return (one.path, kind, f"{one.note}: {versions}")


def _describe_version(version: FileVersion) -> str:
    size = "" if version.size is None else f"{version.size:,} bytes, "
    return f"{size}{version.digest}{', executable' * version.is_executable}"


def describe_metrics(scores: Sequence[MetricComparison], view: DiffView) -> Iterator[str]:
    """Last and best values of each metric that differs, and the differences."""
    differing = [one for one in scores if not one.is_same]
    same = count_same(len(scores) - len(differing))
    if not differing:
        yield f"metrics: nothing differs, {same}"
        return
    yield f"metrics: {count_differing(len(differing), 'metric')}, {same}"
    shown = differing[: view.cut(differing, _METRIC_ROWS)]
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
        return f"by more than {close} at the same step"
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
    shown = rows[: view.cut(rows, _METRIC_ROWS)]
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
        yield [name, *(str(group.means.get(name, MISSING)) for group in groups)]
