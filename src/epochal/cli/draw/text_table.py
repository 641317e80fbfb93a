"""Tables in plain text that fit the terminal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rich.cells import set_cell_size

from epochal.text.escape import escape_control
from epochal.text.terminal import (
    display_width,
    is_plain,
    max_display_width,
    terminal_width,
    wrap,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    Row = Sequence[str]

# Why not rich.table: it cuts the end off cells, digits of numbers included, and columns that do
# not fit at all; in a cell it also cuts words that are longer than the cell, such as paths.

_GAP = 2
_MIN_NAME_WIDTH = 12
_MIN_KEY_WIDTH = 26  # of the first column, whose names tell the rows apart
_MAX_NUMBER_WIDTH = 24
_MIN_PROSE_WIDTH = 20
_NUMBER = re.compile(r"[+-]?(\d|inf|nan)")
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


def _min_width(cell: str, least: int = _MIN_NAME_WIDTH) -> int:
    """How far a cell may be shortened: numbers and ids stay whole."""
    width = display_width(cell)
    is_number = width <= _MAX_NUMBER_WIDTH and _NUMBER.match(cell.lstrip())
    return width if is_number else min(width, least)


def _column_widths(table: Sequence[Row], limit: int) -> list[int]:
    """Widths that fit into one line if possible; the widest columns shrink first."""
    columns = [{*column} for column in zip(*table, strict=True)]
    widths = [max_display_width(column) for column in columns]
    least = [max(map(_min_width, column)) for column in columns]
    room = limit - _GAP - max(least[1:], default=0)
    key_width = max(_min_width(cell, _MIN_KEY_WIDTH) for cell in columns[0])
    least[0] = max(least[0], min(key_width, room))
    gaps = _GAP * (len(widths) - 1)
    if sum(least) + gaps > limit:  # several blocks: each column only shares a line with the first
        first = min(widths[0], max(least[0], room))
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
    cells = (_fill(row[i], widths[i]) for i in block)
    return (" " * _GAP).join(cells).rstrip()


def _fill(cell: str, width: int) -> str:
    if len(cell) <= width and is_plain(cell):
        return cell.ljust(width)
    return set_cell_size(shorten(cell, width), width)


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
    """The first whole words: a number without its last digit would be another number."""
    start = ""
    for word in _WORDS.findall(text):
        if display_width(start + word) + 2 > width:
            break
        start += word
    return f"{start} {_ELLIPSIS}" if start else _ELLIPSIS[:width]
