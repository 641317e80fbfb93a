"""Ends a script whose run failed with an uncaught error: prints a message, sets the exit code."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, final

from epochal.errors import DIVERGED, DivergedError, EpochalError, Preempted
from epochal.text.error_output import print_error

if TYPE_CHECKING:
    from epochal.engine import RunResult

_EXPLAINED = "_epochal_explained"
_PACKAGE = str(Path(__file__).parents[2])
_STDLIB = (str(Path(sys.modules["functools"].__file__ or "").parent), "<frozen")


@final
class _Explained(NamedTuple):
    exit_code: int
    text: str
    """What remains to be printed if nothing catches the error."""


def to_raised(
    result: RunResult, error: BaseException | None, *, unshown: str = ""
) -> BaseException:
    """The error to raise for a run that failed: the original one, without our frames.

    A run that Ctrl-C or a signal stopped between two steps has no error; it gets the one that
    Python raises then. One that diverged gets a DivergedError. ``unshown`` is printed if nothing
    catches the error.
    """
    if error is None and result.status == DIVERGED:
        error = DivergedError(result.message or "the run diverged")
    elif error is None:
        kind = Preempted if result.status == "preempted" else KeyboardInterrupt
        error = kind(f"the run was {result.status}")
    if isinstance(error, SystemExit) and not error.code:
        error.code = result.exit_code  # `sys.exit()` within a run: it has failed
    with suppress(AttributeError):  # a class with slots; Python shows its traceback
        setattr(error, _EXPLAINED, _Explained(result.exit_code, unshown))
    return error.with_traceback(_keep_user_frames(error))


def _keep_user_frames(error: BaseException) -> TracebackType | None:
    """The traceback without frames of Epochal; unchanged if no user code is in it."""
    frames = []
    link = error.__traceback__
    while link is not None:
        frames.append(link)
        link = link.tb_next
    files = [frame.tb_frame.f_code.co_filename for frame in frames]
    has_user_code = any(
        not name.startswith((_PACKAGE, *_STDLIB)) and "site-packages" not in name for name in files
    )
    if not has_user_code and not isinstance(error, EpochalError):
        return error.__traceback__
    kept: TracebackType | None = None
    for frame, name in reversed(list(zip(frames, files, strict=True))):
        if not name.startswith(_PACKAGE):
            kept = TracebackType(kept, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return kept


@cache
def show_uncaught_errors() -> None:
    """Make a script that ends with such an error print the message and use the exit code.

    Python calls ``sys.excepthook`` for errors that nothing catches. All other errors, and all
    errors if the program has its own hook, go to the previous hook.
    """
    previous = sys.excepthook

    def show(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        explained: _Explained | None = getattr(error, _EXPLAINED, None)
        if explained is None and isinstance(error, EpochalError):
            explained = _Explained(error.exit_code, _redacted(str(error)))
        if explained is None or previous is not sys.__excepthook__:
            previous(kind, error, traceback)
        elif explained.text:
            sys.stdout.flush()
            print_error(explained.text)
        is_interactive = hasattr(sys, "ps1") or sys.flags.interactive
        if explained is not None and not is_interactive:
            raise SystemExit(explained.exit_code)

    sys.excepthook = show


def _redacted(text: str) -> str:
    from epochal.records.secrets import redact  # most scripts end without an error

    return redact(text, is_code=True)
