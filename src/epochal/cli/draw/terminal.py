"""What standard output can show: its width, colours and characters."""

from __future__ import annotations

import os
import shutil
import sys


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
