"""Lets a crash of native code leave the Python stack in the record."""

from __future__ import annotations

import faulthandler
import sys
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING

from epochal.engine.process.watchdog import find_rank_path, remove_if_empty
from epochal.records.folder.crash import CRASH_FILE_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from epochal.engine.interfaces.run import Run


@contextmanager
def recording_crashes(run: Run) -> Iterator[None]:
    """Have a crash, such as a segmentation fault, write its stack during a block.

    It goes to the record; to the terminal in a run without one, and in Python processes that
    were started with ``-X faulthandler``.
    """
    if faulthandler.is_enabled():
        yield
        return
    folder = run.log_dir
    path = None if folder is None else find_rank_path(folder, CRASH_FILE_NAME, run.rank)
    file = sys.__stderr__ if path is None else _open(path)
    if file is None:
        yield
        return
    try:
        with suppress(ValueError, OSError):  # standard error may be closed
            faulthandler.enable(file, all_threads=False)
        yield
    finally:
        faulthandler.disable()
        if path is not None:
            file.close()
            remove_if_empty(run, path)


def _open(path: Path) -> IO[str] | None:
    """The file, without the crash of an earlier process; None if it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("w", encoding="utf-8")
    except OSError:  # the run reports if it cannot write either
        return None
