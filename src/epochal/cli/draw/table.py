"""Tables in plain text: columns as wide as they need, as many as the terminal can take."""

from __future__ import annotations

import re
import shutil
import sys
import unicodedata
from typing import TYPE_CHECKING

from epochal.text.escape import escape_control

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Row = Sequence[str]
    from collections.abc import Iterable


_GAP = 2
_SHORTEST_NAME = 12
_LONGEST_FIGURE = 24
_ROOM_FOR_PROSE = 20
_FIGURE = re.compile(r"[+-]?(\d|inf|nan)")


def format_table(
    header: Row, rows: Sequence[Row], *, width: int | None = None, has_prose: bool = False
) -> str:
    """Aligned lines under a header that fit the terminal.

    Where it is narrow, names are shortened, and what is still too wide goes on in further lines
    below, each beginning with the first column. Numbers are never cut.

    Args:
        header: What the columns are called.
        rows: As many cells each.
        width: Most columns of a line; by default as many as the terminal has.
        has_prose: The last column is made of sentences, which are wrapped and not shortened.
    """
    limit = width or terminal_width()
    whole = [[_cell(cell) for cell in row] for row in (header, *rows)]
    if has_prose:
        return "\n".join(_with_prose(whole, limit))
    widths = _shrink(whole, limit)
    blocks = _blocks(widths, limit)
    lines = [[_line([row[i] for i in block], widths, block) for row in whole] for block in blocks]
    return "\n\n".join("\n".join(block) for block in lines)


def _cell(text: str) -> str:
    """A text in one line, with nothing in it that could steer a terminal."""
    return escape_control(text).replace("\n", "\\n")


def _least(column: Row) -> int:
    """How narrow a column may become: figures and ids stay whole, names are shortened."""
    return max(_least_of(cell) for cell in column)


def _least_of(cell: str) -> int:
    size = display_width(cell)
    is_figure = size <= _LONGEST_FIGURE and _FIGURE.match(cell.lstrip())
    return size if is_figure else min(size, _SHORTEST_NAME)


def _shrink(whole: Sequence[Row], limit: int) -> list[int]:
    """Widths of the columns: the widest one gives way first, if that helps."""
    columns = list(zip(*whole, strict=True))
    widths = [max(map(display_width, column)) for column in columns]
    least = [_least(column) for column in columns]
    gaps = _GAP * (len(widths) - 1)
    if sum(least) + gaps > limit:  # no line has room for all: each column has what it can have
        first = min(widths[0], max(least[0], limit - _GAP - max(least[1:], default=0)))
        rooms = [first, *(limit - first - _GAP for _ in widths[1:])]
        return [min(w, max(m, room)) for w, m, room in zip(widths, least, rooms, strict=True)]
    for _ in range(sum(widths) + gaps - limit):
        widest = max((size, i) for i, size in enumerate(widths) if size > least[i])[1]
        widths[widest] -= 1
    return widths


def _blocks(widths: list[int], limit: int) -> list[list[int]]:
    """Which columns stand side by side."""
    blocks, used = [[0]], widths[0]
    for i, size in enumerate(widths[1:], 1):
        used += _GAP + size
        if used > limit and len(blocks[-1]) > 1:
            blocks.append([0])
            used = widths[0] + _GAP + size
        blocks[-1].append(i)
    return blocks


def _line(cells: Row, widths: list[int], block: list[int]) -> str:
    sized = (pad(shorten(cell, widths[i]), widths[i]) for cell, i in zip(cells, block, strict=True))
    return (" " * _GAP).join(sized).rstrip()


def _with_prose(whole: Sequence[Row], limit: int) -> Iterator[str]:
    """Lines whose last cell goes on below itself, or below the whole line where that is narrow."""
    heads = [row[:-1] for row in whole]
    widths = [max(map(display_width, column)) for column in zip(*heads, strict=True)]
    start = sum(widths) + _GAP * len(widths)
    if limit - start < _ROOM_FOR_PROSE:
        widths = _shrink(heads, limit)
    for row in whole:
        head = _line(row[:-1], widths, list(range(len(widths))))
        if limit - start >= _ROOM_FOR_PROSE:
            first, *others = wrap(row[-1], limit - start)
            yield f"{pad(head, start)}{first}".rstrip()
            yield from (" " * start + line.lstrip() for line in others)
        else:
            yield head
            yield from (f"    {line.lstrip()}" for line in wrap(row[-1], limit - 4))


ELLIPSIS = "…"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LABEL = re.compile(r" *\S+ {2,}(?=\S)")
_LONGEST_LABEL = 14
_NARROWEST = 16


def terminal_width() -> int:
    """How many columns a line may have."""
    # Files and pipes have no edge: what reads them wants the whole line.
    return shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else sys.maxsize


def display_width(text: str) -> int:
    """How many columns a text takes: wide characters take two, accents and colours none."""
    text = _COLOUR.sub("", text) if "\x1b" in text else text
    return len(text) if text.isascii() else sum(map(_measure, text))


def _measure(char: str) -> int:
    if unicodedata.east_asian_width(char) in "WF":
        return 2
    return 0 if unicodedata.category(char) in ("Mn", "Me", "Cf") else 1


def pad(text: str, width: int) -> str:
    """A text with spaces behind it, up to a number of columns."""
    return text + " " * (width - display_width(text))


def shorten(text: str, width: int) -> str:
    """A text in at most ``width`` columns: a name loses its middle, a sentence its last words."""
    if display_width(text) <= width:
        return text
    if " " in text.strip():
        return _first_words(text, width)
    tail = width // 2
    return _start(text, width - 1 - tail) + ELLIPSIS + _start(text[::-1], tail)[::-1]


def _first_words(text: str, width: int) -> str:
    """Whole words, since a number that lost a digit would be another one."""
    kept = ""
    for part in re.findall(r"\s*\S+", text):
        if display_width(kept + part) + 2 > width:
            break
        kept += part
    return f"{kept} {ELLIPSIS}" if kept else ELLIPSIS[:width]


def _start(text: str, width: int) -> str:
    """As many characters as fit."""
    end = 0
    while end < len(text) and display_width(text[: end + 1]) <= width:
        end += 1
    return text[:end]


def wrap(line: str, width: int | None = None) -> Iterator[str]:
    """A line as lines that fit, each further one below what followed the label of the first.

    Words stay whole, also one that is longer than a line: it may be a path that is copied.
    """
    limit = terminal_width() if width is None else width
    if display_width(line) <= limit:
        yield line
        return
    label = _LABEL.match(line)
    hang = len(label[0]) if label and len(label[0]) <= _LONGEST_LABEL else _indent(line) + 2
    hang = hang if limit - hang >= _NARROWEST else min(_indent(line) + 2, limit // 4)
    kept = ""
    for part in re.findall(r"\s*\S+", line):
        is_alone = len(kept) < hang  # below it there would be no more room than beside it
        if display_width(kept + part) <= limit or is_alone:
            kept += part
        else:
            yield kept
            kept = " " * hang + part.lstrip()
    yield kept


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def print_wrapped(lines: Iterable[str]) -> None:
    """Print lines, and what is in them, no wider than the terminal where that can be.

    What came from a record cannot steer the terminal.
    """
    for text in lines:
        for line in escape_control(text).split("\n"):
            for part in wrap(line):
                print(part)
