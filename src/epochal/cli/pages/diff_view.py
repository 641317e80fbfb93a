"""How comparisons of runs are shown: letters, colours and limits on rows."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from epochal.cli.draw.table import format_table
from epochal.text.command import epochal_command
from epochal.text.escape import escape_control
from epochal.text.formatting import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

PLAIN, BOLD, RED, GREEN, CYAN = 0, 1, 31, 32, 36
MISSING = "-"
"""Shown where a run has no value."""


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
