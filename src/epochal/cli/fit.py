"""How wide text is on a screen, and how it is made to fit there."""

from __future__ import annotations

import re
import shutil
import sys
import unicodedata
from typing import TYPE_CHECKING

from epochal.experiment.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ELLIPSIS = "…"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LABEL = re.compile(r" *\S+ {2,}(?=\S)")
_LONGEST_LABEL = 14
_NARROWEST = 16


def terminal_width() -> int:
    """How many columns a line may have."""
    # Files and pipes have no edge: what reads them wants the whole line.
    return shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else sys.maxsize


def measure(text: str) -> int:
    """How many columns a text takes: wide characters take two, accents and colours none."""
    text = _COLOUR.sub("", text) if "\x1b" in text else text
    return len(text) if text.isascii() else sum(map(_measure, text))


def _measure(char: str) -> int:
    if unicodedata.east_asian_width(char) in "WF":
        return 2
    return 0 if unicodedata.category(char) in ("Mn", "Me", "Cf") else 1


def pad(text: str, width: int) -> str:
    """A text with spaces behind it, up to a number of columns."""
    return text + " " * (width - measure(text))


def shorten(text: str, width: int) -> str:
    """A text in at most ``width`` columns: a name loses its middle, a sentence its last words."""
    if measure(text) <= width:
        return text
    if " " in text.strip():
        return _first_words(text, width)
    tail = width // 2
    return _start(text, width - 1 - tail) + ELLIPSIS + _start(text[::-1], tail)[::-1]


def _first_words(text: str, width: int) -> str:
    """Whole words, since a number that lost a digit would be another one."""
    kept = ""
    for part in re.findall(r"\s*\S+", text):
        if measure(kept + part) + 2 > width:
            break
        kept += part
    return f"{kept} {ELLIPSIS}" if kept else ELLIPSIS[:width]


def _start(text: str, width: int) -> str:
    """As many characters as fit."""
    end = 0
    while end < len(text) and measure(text[: end + 1]) <= width:
        end += 1
    return text[:end]


def wrap(line: str, width: int | None = None) -> Iterator[str]:
    """A line as lines that fit, each further one below what followed the label of the first.

    Words stay whole, also one that is longer than a line: it may be a path that is copied.
    """
    limit = terminal_width() if width is None else width
    if measure(line) <= limit:
        yield line
        return
    label = _LABEL.match(line)
    hang = len(label[0]) if label and len(label[0]) <= _LONGEST_LABEL else _indent(line) + 2
    hang = hang if limit - hang >= _NARROWEST else min(_indent(line) + 2, limit // 4)
    kept = ""
    for part in re.findall(r"\s*\S+", line):
        is_alone = len(kept) < hang  # below it there would be no more room than beside it
        if measure(kept + part) <= limit or is_alone:
            kept += part
        else:
            yield kept
            kept = " " * hang + part.lstrip()
    yield kept


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def print_fitting(lines: Iterable[str]) -> None:
    """Print lines, and what is in them, no wider than the terminal where that can be.

    What came from a record cannot steer the terminal.
    """
    for text in lines:
        for line in printable(text).split("\n"):
            for part in wrap(line):
                print(part)
