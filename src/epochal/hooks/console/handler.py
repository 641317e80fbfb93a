"""Log records on the screen, above the progress display and never through it."""

from __future__ import annotations

import logging
import sys
from datetime import datetime
from typing import TYPE_CHECKING, final

from rich.text import Text
from typing_extensions import override

from epochal.records.secrets import redact

if TYPE_CHECKING:
    from rich.console import Console

STYLES = {logging.WARNING: "yellow", logging.ERROR: "bold red", logging.CRITICAL: "bold red"}


@final
class ScreenHandler(logging.Handler):
    """Shows log records on ``screen``.

    A record may carry an attribute ``screen``: what to show on a terminal in place of the
    message (anything that rich can print), or None when a terminal already shows it otherwise.
    """

    def __init__(self, screen: Console) -> None:
        super().__init__()
        self._screen = screen

    @override
    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self._screen.is_terminal:
                self._show(record)
            else:
                self._write(record)
        except Exception:  # as every handler of the standard library: a log never ends a run
            self.handleError(record)

    def _show(self, record: logging.LogRecord) -> None:
        shown = getattr(record, "screen", _describe(record))
        if shown is not None:
            self._screen.print(shown, soft_wrap=isinstance(shown, Text), highlight=False)

    def _write(self, record: logging.LogRecord) -> None:
        file = self._screen.file
        day = datetime.fromtimestamp(record.created).strftime("%Y-%m-%d ")
        # A stream in another encoding than UTF-8 gets a question mark rather than an error.
        encoding = getattr(file, "encoding", None) or "utf-8"
        line = f"{day}{_describe(record).plain}\n".encode(encoding, "replace").decode(encoding)
        file.write(line)
        file.flush()


@final
class Takeover:
    """Has ``screen`` show the log from construction until ``end``.

    On a terminal, handlers that write to standard output or error step aside, because they
    would write through the progress display. Elsewhere a program that prints its log already
    goes on doing so.
    """

    def __init__(self, screen: Console) -> None:
        root, ours = logging.getLogger(), logging.getLogger("epochal")
        others = [handler for handler in root.handlers if _is_console(handler)]
        self._aside = others if screen.is_terminal else []
        self._handler = ScreenHandler(screen) if screen.is_terminal or not others else None
        self._level = ours.level
        if not others and ours.level == logging.NOTSET:
            ours.setLevel(logging.INFO)  # nobody set up a log, so progress would be dropped
        for handler in self._aside:
            root.removeHandler(handler)
        if self._handler is not None:
            root.addHandler(self._handler)

    def end(self) -> None:
        """Put everything back; a second call does nothing."""
        root = logging.getLogger()
        if self._handler is not None:
            root.removeHandler(self._handler)
        for handler in self._aside:
            root.addHandler(handler)
        logging.getLogger("epochal").setLevel(self._level)
        self._handler, self._aside = None, []


def _is_console(handler: logging.Handler) -> bool:
    streams = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    own = isinstance(handler, ScreenHandler)
    return own or (isinstance(handler, logging.StreamHandler) and handler.stream in streams)


def _describe(record: logging.LogRecord) -> Text:
    """Time and message without secrets; level and logger too when something is wrong."""
    style = STYLES.get(record.levelno, "")
    text = Text(f"{datetime.fromtimestamp(record.created):%H:%M:%S} ", "dim")
    if record.levelno != logging.INFO:
        text.append(f"{record.levelname.lower()} ", style).append(f"{record.name}: ", "dim")
    message = record.getMessage()
    if record.exc_info:
        message += "\n" + logging.Formatter().formatException(record.exc_info)
    return text.append(redact(message))
