"""Tables and wrapped lines in plain text that fit the terminal, and what it can show."""

from __future__ import annotations

import os
import re
import shutil
import sys
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size

from epochal.text.escape import escape_control

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    Row = Sequence[str]

# Why not rich.table: it cuts the end off cells, digits of numbers included, and columns that do
# not fit at all; in a cell it also cuts words that are longer than the cell, such as paths.

_GAP = 2
_MIN_NAME_WIDTH = 12
_MAX_NUMBER_WIDTH = 24
_MIN_PROSE_WIDTH = 20
_MAX_LABEL_WIDTH = 14
_MIN_WRAP_WIDTH = 16
_NUMBER = re.compile(r"[+-]?(\d|inf|nan)")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LABEL = re.compile(r" *\S+ {2,}(?=\S)")
_WORDS = re.compile(r"\s*\S+")
_ELLIPSIS = "…"


def format_table(
    header: Row, rows: Sequence[Row], *, width: int | None = None, has_prose: bool = False
) -> str:
    """Aligned lines under a header that fit the terminal.

    On a narrow terminal, names are shortened; columns that still do not fit follow in a second
    block, which repeats the first column. Numbers are never cut.

    With ``has_prose`` the last column holds sentences, which are wrapped and not shortened.
    """
    limit = width or terminal_width()
    table = [[escape_control(cell).replace("\n", "\\n") for cell in row] for row in (header, *rows)]
    if has_prose:
        return "\n".join(_lines_with_prose(table, limit))
    widths = _column_widths(table, limit)
    blocks = (
        "\n".join(_line(row, widths, block) for row in table) for block in _blocks(widths, limit)
    )
    return "\n\n".join(blocks)


def _min_width(cell: str) -> int:
    """How far a cell may be shortened: numbers and ids stay whole."""
    width = display_width(cell)
    is_number = width <= _MAX_NUMBER_WIDTH and _NUMBER.match(cell.lstrip())
    return width if is_number else min(width, _MIN_NAME_WIDTH)


def _column_widths(table: Sequence[Row], limit: int) -> list[int]:
    """Widths that fit into one line if possible; the widest columns shrink first."""
    columns = list(zip(*table, strict=True))
    widths = [max(map(display_width, column)) for column in columns]
    least = [max(map(_min_width, column)) for column in columns]
    gaps = _GAP * (len(widths) - 1)
    if sum(least) + gaps > limit:  # several blocks: each column only shares a line with the first
        first = min(widths[0], max(least[0], limit - _GAP - max(least[1:], default=0)))
        rooms = [first, *(limit - first - _GAP for _ in widths[1:])]
        return [min(w, max(m, room)) for w, m, room in zip(widths, least, rooms, strict=True)]
    for _ in range(sum(widths) + gaps - limit):
        widest = max((size, i) for i, size in enumerate(widths) if size > least[i])[1]
        widths[widest] -= 1
    return widths


def _blocks(widths: list[int], limit: int) -> list[list[int]]:
    """The columns of each block, all with the first column."""
    blocks, used = [[0]], widths[0]
    for i, size in enumerate(widths[1:], 1):
        used += _GAP + size
        if used > limit and len(blocks[-1]) > 1:
            blocks.append([0])
            used = widths[0] + _GAP + size
        blocks[-1].append(i)
    return blocks


def _line(row: Row, widths: Sequence[int], block: Iterable[int]) -> str:
    cells = (set_cell_size(shorten(row[i], widths[i]), widths[i]) for i in block)
    return (" " * _GAP).join(cells).rstrip()


def _lines_with_prose(table: Sequence[Row], limit: int) -> Iterator[str]:
    """Lines whose last cell continues below itself, or below the line on a narrow terminal."""
    heads = [row[:-1] for row in table]
    widths = [max(map(display_width, column)) for column in zip(*heads, strict=True)]
    start = sum(widths) + _GAP * len(widths)
    is_narrow = limit - start < _MIN_PROSE_WIDTH
    if is_narrow:
        widths, start = _column_widths(heads, limit), 4
    for row in table:
        head = _line(row, widths, range(len(widths)))
        lines = [" " * start + line.lstrip() for line in wrap(row[-1], limit - start)]
        if is_narrow:
            yield head
        else:
            lines[0] = f"{set_cell_size(head, start)}{lines[0].lstrip()}".rstrip()
        yield from lines


def display_width(text: str) -> int:
    """How many columns a text takes; colours take none."""
    return cell_len(_COLOUR.sub("", text))


def shorten(text: str, width: int) -> str:
    """A text in at most ``width`` columns: a name loses its middle, a sentence its last words."""
    if display_width(text) <= width:
        return text
    if " " in text.strip():
        return _first_words(text, width)
    end_width = width // 2
    start = set_cell_size(text, width - 1 - end_width).rstrip()
    return start + _ELLIPSIS + set_cell_size(text[::-1], end_width).rstrip()[::-1]


def _first_words(text: str, width: int) -> str:
    """Whole words only: a number without its last digit would be another number."""
    start = ""
    for word in _WORDS.findall(text):
        if display_width(start + word) + 2 > width:
            break
        start += word
    return f"{start} {_ELLIPSIS}" if start else _ELLIPSIS[:width]


def wrap(line: str, width: int | None = None) -> Iterator[str]:
    """Lines that fit; all but the first are indented, below the text after a label if there is one.

    Words are never broken: a word longer than a line may be a path to copy.
    """
    limit = terminal_width() if width is None else width
    if display_width(line) <= limit:
        yield line
        return
    label, indent = _LABEL.match(line), len(line) - len(line.lstrip())
    hang = len(label[0]) if label and len(label[0]) <= _MAX_LABEL_WIDTH else indent + 2
    hang = hang if limit - hang >= _MIN_WRAP_WIDTH else min(indent + 2, limit // 4)
    start = ""
    for word in _WORDS.findall(line):
        # A word right after the label would have no more room in the next line.
        if display_width(start + word) <= limit or len(start) < hang:
            start += word
        else:
            yield start
            start = " " * hang + word.lstrip()
    yield start


def print_wrapped(lines: Iterable[str]) -> None:
    """Print lines wrapped to the terminal, with control characters escaped."""
    for text in lines:
        for line in escape_control(text).split("\n"):
            for part in wrap(line):
                print(part)


def terminal_width() -> int:
    """How many columns a line may have."""
    # Files and pipes have no edge: their readers need the whole line.
    return shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else sys.maxsize


def supports_colours() -> bool:
    """Whether standard output is a terminal whose user has not turned colours off."""
    is_allowed = "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    return sys.stdout.isatty() and is_allowed


def can_encode(text: str) -> bool:
    """Whether the encoding of standard output has every character of ``text``."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
