"""Where log lines go: the terminal, and one file in the run's folder."""

from __future__ import annotations

import errno
import logging
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO, final

from typing_extensions import override

from epochal.records.layout.os_errors import raising_record_errors
from epochal.records.secrets import redact
from epochal.text.escape import replace_unencodable
from epochal.text.terminal import discard_output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_FILE_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_TERMINAL_FORMAT = "%(asctime)s %(message)s"

FILE_ONLY = "is_for_the_file_only"
"""Attribute of log records that a terminal shows in another form, such as tracebacks."""


@final
class TerminalHandler(logging.StreamHandler[TextIO]):
    """Writes to the current ``sys.stdout``, which a progress bar may replace."""

    def __init__(self) -> None:
        super().__init__(sys.stdout)

    @override
    def emit(self, record: logging.LogRecord) -> None:
        if not getattr(record, FILE_ONLY, False):
            self.stream = sys.stdout
            super().emit(record)

    @override
    def format(self, record: logging.LogRecord) -> str:
        return replace_unencodable(super().format(record), getattr(self.stream, "encoding", None))

    @override
    def handleError(self, record: logging.LogRecord) -> None:
        """Continue without a terminal that was closed, such as a pipe without a reader."""
        error = sys.exc_info()[1]
        if isinstance(error, OSError) and error.errno in (errno.EPIPE, errno.EIO):
            with suppress(OSError):
                discard_output(self.stream.fileno())
        else:
            super().handleError(record)


@final
class RunLogHandler(logging.FileHandler):
    """Writes to the text log of a run; lines that a full disk refuses are dropped.

    All lines are dropped once ``is_owner`` is false: another process owns the folder.
    """

    def __init__(self, path: Path, *, is_owner: Callable[[], bool]) -> None:
        super().__init__(path, encoding="utf-8", errors="backslashreplace")
        self._is_owner = is_owner

    @override
    def emit(self, record: logging.LogRecord) -> None:
        if self._is_owner():
            super().emit(record)

    @override
    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)

    @override
    def close(self) -> None:
        with suppress(OSError):  # closing tries to write the rest
            super().close()


@final
class RedactingFormatter(logging.Formatter):
    """Formats log records without secrets."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


@contextmanager
def logging_to(
    path: Path | None,
    *,
    level: str,
    is_owner: Callable[[], bool] = lambda: True,
    is_shown: bool = True,
) -> Iterator[None]:
    """Send the lines of all loggers to the terminal and, if given, to the file at ``path``.

    The file gets lines while ``is_owner`` is true, the terminal if ``is_shown``. Existing handlers
    stay; ours are removed at the end.
    """
    root, ours = logging.getLogger(), logging.getLogger("epochal")
    number = logging.getLevelNamesMapping()[level.upper()]
    handlers: list[logging.Handler] = [TerminalHandler() if is_shown else logging.NullHandler()]
    handlers[0].setFormatter(RedactingFormatter(_TERMINAL_FORMAT, datefmt="%H:%M:%S"))
    if path is not None:
        with raising_record_errors():
            handlers.append(RunLogHandler(path, is_owner=is_owner))
        handlers[1].setFormatter(RedactingFormatter(_FILE_FORMAT))
    before = root.level, ours.level
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(min(root.level, number))
    ours.setLevel(number)
    try:
        yield
    finally:
        root.setLevel(before[0])
        ours.setLevel(before[1])
        for handler in handlers:
            root.removeHandler(handler)
            handler.close()
