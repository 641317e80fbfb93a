"""Log records on the screen, above the progress bars."""

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
    message (anything that rich can print), or None to show nothing on a terminal.
    """

    def __init__(self, screen: Console) -> None:
        super().__init__()
        self._screen = screen

    @override
    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = _describe(record)
            if not self._screen.is_terminal:
                self._write(f"{datetime.fromtimestamp(record.created):%Y-%m-%d} {text}\n")
            elif (shown := getattr(record, "screen", text)) is not None:
                self._screen.print(shown, soft_wrap=isinstance(shown, Text), highlight=False)
        except Exception:  # like the handlers of the standard library: logging never ends a run
            self.handleError(record)

    def _write(self, line: str) -> None:
        file = self._screen.file
        # Characters that the encoding of the stream lacks become question marks, not errors.
        encoding = getattr(file, "encoding", None) or "utf-8"
        file.write(line.encode(encoding, "replace").decode(encoding))
        file.flush()


@final
class LogRedirect:
    """Shows the log on ``screen`` from construction until ``end``.

    On a terminal, handlers that write to standard output or error are removed meanwhile, because
    they would write over the progress bars. Elsewhere they stay, and nothing is shown twice.
    """

    def __init__(self, screen: Console) -> None:
        root, ours = logging.getLogger(), logging.getLogger("epochal")
        others = [handler for handler in root.handlers if _writes_to_console(handler)]
        self._removed = others if screen.is_terminal else []
        self._handler = ScreenHandler(screen) if screen.is_terminal or not others else None
        self._level = ours.level
        if not others and ours.level == logging.NOTSET:
            ours.setLevel(logging.INFO)  # without logging set up, progress would be dropped
        for handler in self._removed:
            root.removeHandler(handler)
        if self._handler is not None:
            root.addHandler(self._handler)

    def end(self) -> None:
        """Restore the handlers and the level; a second call does nothing."""
        root = logging.getLogger()
        if self._handler is not None:
            root.removeHandler(self._handler)
        for handler in self._removed:
            root.addHandler(handler)
        logging.getLogger("epochal").setLevel(self._level)
        self._handler, self._removed = None, []


def _writes_to_console(handler: logging.Handler) -> bool:
    if isinstance(handler, logging.StreamHandler):
        return handler.stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    return isinstance(handler, ScreenHandler)


def _describe(record: logging.LogRecord) -> Text:
    """Time and message without secrets; level and logger too unless the level is INFO."""
    style = STYLES.get(record.levelno, "")
    text = Text(f"{datetime.fromtimestamp(record.created):%H:%M:%S} ", "dim")
    if record.levelno != logging.INFO:
        text.append(f"{record.levelname.lower()} ", style).append(f"{record.name}: ", "dim")
    return text.append(redact(logging.Formatter().format(record)))  # with the traceback
