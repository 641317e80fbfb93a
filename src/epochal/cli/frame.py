"""The frame around an error that ended a run, so that nobody misses it in a long log."""

from __future__ import annotations

import shutil
import textwrap

_NARROW, _WIDE = 60, 100


def framed(title: str, text: str, *, width: int | None = None) -> str:
    """``text`` in a box with ``title`` on its upper edge; long lines are wrapped."""
    columns = width or shutil.get_terminal_size((80, 24)).columns
    inner = min(max(columns, _NARROW), _WIDE) - 4
    lines = [part for line in text.splitlines() for part in _wrap(line, inner)]
    heading = textwrap.shorten(title, inner - 4, placeholder=" ...")
    top = f"╭─ {heading} {'─' * (inner - len(heading) - 1)}╮"
    body = [f"│ {line:<{inner}} │" for line in lines]
    return "\n".join([top, *body, f"╰{'─' * (inner + 2)}╯"])


def _wrap(line: str, width: int) -> list[str]:
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.wrap(line, width, subsequent_indent=indent, drop_whitespace=False) or [""]
