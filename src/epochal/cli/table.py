"""Tables in plain text: columns as wide as they need, as many as the terminal can take."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def format_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, width: int | None = None
) -> str:
    """Aligned lines under a header; on a terminal the last column is cut where that ends."""
    limit = width or terminal_width()
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    lines = []
    for row in (header, *rows):
        cells = (f"{cell:<{size}}" for cell, size in zip(row, widths, strict=True))
        line = "  ".join(cells).rstrip()
        lines.append(line if len(line) <= limit else line[: limit - 1] + "…")
    return "\n".join(lines)


def terminal_width() -> int:
    """How many characters a line may have."""
    # Files and pipes have no edge: what reads them wants the whole line.
    return shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else sys.maxsize
