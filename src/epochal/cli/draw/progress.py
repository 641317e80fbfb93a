"""Progress messages on stderr for commands that take longer than a second."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self, final

if TYPE_CHECKING:
    from collections.abc import Callable

_FIRST_SECONDS = 1.0
_TERMINAL_SECONDS = 0.1
_LINE_SECONDS = 10.0


@final
class Progress:
    """Shows the newest message on one line of a terminal; elsewhere a line every ten seconds.

    Nothing is shown in the first second. Call it with each message, inside ``with``.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due = clock() + _FIRST_SECONDS
        self._is_terminal = sys.stderr.isatty()
        self._is_shown = False

    def __call__(self, text: str) -> None:
        """Show ``text``, unless the message before it is too recent."""
        now = self._clock()
        if now < self._due:
            return
        self._due = now + (_TERMINAL_SECONDS if self._is_terminal else _LINE_SECONDS)
        self._is_shown = self._is_terminal
        start, end = ("\r\x1b[K", "") if self._is_terminal else ("", "\n")
        print(f"{start}{text}", end=end, file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
