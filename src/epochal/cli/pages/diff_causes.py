"""Differences in the inputs of runs: parameters, code, packages and others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from epochal.cli.pages.diff_view import (
    BOLD,
    CYAN,
    GREEN,
    MISSING,
    PLAIN,
    RED,
    count_differing,
    count_same,
)
from epochal.text.escape import escape_control
from epochal.text.formatting import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from epochal.cli.pages.diff_view import DiffView
    from epochal.records.compare.code import CodeComparison, FileDifference, FileVersion
    from epochal.records.compare.difference import Difference, RunValue, SectionComparison

_ROWS = 16
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
    shown = major[: view.cut(major, _ROWS)]
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
    shown = code.files[: view.cut(code.files, _ROWS)]
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
