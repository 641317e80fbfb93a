"""The page of ``epochal diff``: the runs, a summary, then each section."""

from __future__ import annotations

from string import ascii_uppercase
from typing import TYPE_CHECKING

from epochal.cli.draw.table import format_table
from epochal.cli.pages.diff_causes import describe_code, describe_values
from epochal.cli.pages.diff_results import describe_curves, describe_metrics, describe_replicates
from epochal.cli.pages.diff_view import BOLD, DiffView
from epochal.records.compare import SECTIONS, describe_differences
from epochal.records.folder.derived_fields import seconds_of, step_of, tag_of
from epochal.text.command import epochal_command
from epochal.text.formatting import format_seconds, format_value
from epochal.text.terminal import supports_colours, wrap

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from epochal.records.compare import Comparison
    from epochal.records.folder.record import RunRecord

_UNEXPLAINED = "no difference explains the curves"


def describe_comparison(
    found: Comparison,
    sections: Sequence[str] = SECTIONS,
    *,
    words: Sequence[str] = (),
    has_all: bool = False,
) -> Iterator[str]:
    """The lines that show a comparison.

    Args:
        found: The comparison.
        sections: The sections to show.
        words: The runs as typed, for hints; by default their ids.
        has_all: Show everything in full.
    """
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
