"""The frame around an error that ended a run, so that nobody misses it in a long log."""

from __future__ import annotations

import shutil
import textwrap

_NARROW, _WIDE = 60, 100
_LINES = "╭╮╰╯─│"
_PLAIN_LINES = "++++-|"


def framed(title: str, text: str, *, width: int | None = None, encoding: str = "utf-8") -> str:
    """``text`` in a box with ``title`` on its upper edge; long lines are wrapped.

    Where ``encoding`` has no lines to draw with, the box is made of ``+``, ``-`` and ``|``.
    """
    box = _LINES if _can_encode(_LINES, encoding) else _PLAIN_LINES
    top_left, top_right, low_left, low_right, across, down = tuple(box)
    columns = width or shutil.get_terminal_size((80, 24)).columns
    inner = min(max(columns, _NARROW), _WIDE) - 4
    lines = [part for line in text.splitlines() for part in _wrap(line, inner)]
    heading = textwrap.shorten(title, inner - 4, placeholder=" ...")
    top = f"{top_left}{across} {heading} {across * (inner - len(heading) - 1)}{top_right}"
    body = [f"{down} {line:<{inner}} {down}" for line in lines]
    return "\n".join([top, *body, f"{low_left}{across * (inner + 2)}{low_right}"])


def _can_encode(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeError, LookupError):
        return False
    return True


def _wrap(line: str, width: int) -> list[str]:
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.wrap(line, width, subsequent_indent=indent, drop_whitespace=False) or [""]
