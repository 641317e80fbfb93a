"""What a terminal can show: its width, colours and characters; lines wrapped to fit."""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from epochal.text.escape import escape_control

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

_MAX_LABEL_WIDTH = 14
_MIN_WRAP_WIDTH = 16
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LABEL = re.compile(r" *\S+ {2,}(?=\S)")
_WORDS = re.compile(r"\s*\S+")


def leave_closed_terminal() -> None:
    """Send what is printed nowhere if the terminal was closed; each write would be an error."""
    for descriptor in (1, 2):
        with suppress(OSError):
            is_device = stat.S_ISCHR(os.fstat(descriptor).st_mode)
            if is_device and not os.isatty(descriptor):
                discard_output(descriptor)


def discard_output(descriptor: int) -> None:
    """Send everything that is written to an open file nowhere from now on."""
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), descriptor)


def terminal_width(stream: TextIO | None = None) -> int:
    """How many columns a line may have; by default on standard output."""
    # Files and pipes have no edge: their readers need the whole line.
    is_terminal = (stream or sys.stdout).isatty()
    return shutil.get_terminal_size((100, 24)).columns if is_terminal else sys.maxsize


def supports_colours(stream: TextIO | None = None) -> bool:
    """Whether a stream is a terminal whose user has not turned colours off."""
    is_allowed = "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    return (stream or sys.stdout).isatty() and is_allowed


def can_encode(text: str) -> bool:
    """Whether the encoding of standard output has every character of ``text``."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def is_plain(text: str) -> bool:
    """Whether each character takes one column; quick, and True for most texts."""
    text = text.replace("…", ".")  # of shortened texts
    return text.isascii() and text.isprintable()


def display_width(text: str) -> int:
    """How many columns a text takes; colours take none."""
    if is_plain(text):  # the usual case, which needs no import
        return len(text)
    from rich.cells import cell_len

    return cell_len(_COLOUR.sub("", text))


def max_display_width(texts: Collection[str]) -> int:
    """The width of the widest text, 0 without any; quick for thousands of texts."""
    if is_plain("".join(texts)):
        return max(map(len, texts), default=0)
    return max(map(display_width, {*texts}), default=0)


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
                print(part)  # noqa: T201 - what verbs print


def is_confirmed(question: str) -> bool:
    """Ask the user, and return whether the answer is yes; Ctrl-D is a no."""
    try:
        answer = input(f"{question} [y/N] ")
    except EOFError:
        print()  # noqa: T201 - ends the line of the question
        return False
    return answer.strip().casefold() in ("y", "yes")
