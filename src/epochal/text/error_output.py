"""Prints errors to standard error: wrapped to the terminal, and coloured there."""

from __future__ import annotations

import re
import sys
from itertools import pairwise
from typing import TYPE_CHECKING

from epochal.text.escape import escape_control
from epochal.text.terminal import supports_colours, terminal_width, wrap

if TYPE_CHECKING:
    from collections.abc import Iterator

RED, CYAN, DIM = "1;31", "36", "2"
_CARETS = re.compile(r" +\^+")
_WHERE = re.compile(r"\S.*?(?=: )")
_INDENT = 4  # of a quoted line of a config


def print_error(text: str) -> None:
    """Print messages that say where, what and what now, without control characters."""
    lines = escape_control(text).split("\n")
    print("\n".join(_format(lines)), file=sys.stderr)  # noqa: T201 - where errors are shown


def cut_quotes(lines: list[str], width: int) -> list[str]:
    """The lines, with only that part of a quoted line which fits around the carets below it."""
    shown = list(lines)
    for number, (line, carets) in enumerate(pairwise(lines)):
        if _CARETS.fullmatch(carets):
            shown[number : number + 2] = _cut(line, carets, width)
    return shown


def _format(lines: list[str]) -> Iterator[str]:
    width, has_colours = terminal_width(sys.stderr), supports_colours(sys.stderr)
    lines = cut_quotes(lines, width)
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if _CARETS.fullmatch(following):
            yield line
        elif _CARETS.fullmatch(line):
            yield _paint(line, RED) if has_colours else line
        else:
            for number, part in enumerate(wrap(line, width)):
                yield _paint_line(line, part, number) if has_colours else part


def _cut(line: str, carets: str, width: int) -> tuple[str, str]:
    room, first = max(width - _INDENT, 8), carets.index("^")
    text, marks = line[_INDENT:], carets[_INDENT:]
    start = max(0, min(first - _INDENT - room // 3, len(text) - room))
    shown = text[start : start + room]
    shown = f"…{shown[1:]}" if start else shown
    shown = f"{shown[:-1]}…" if start + room < len(text) else shown
    return " " * _INDENT + shown, " " * _INDENT + marks[start : start + room]


def _paint_line(line: str, part: str, number: int) -> str:
    """A part of a wrapped line in colour: where it is, the place, the hint."""
    if line.startswith("  set "):
        return _paint(part, DIM)
    if line.startswith(" "):
        return _paint(part, CYAN)
    where = None if number else _WHERE.match(part)
    return part if where is None else _paint(where[0], RED) + part[where.end() :]


def _paint(text: str, colour: str) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m"
