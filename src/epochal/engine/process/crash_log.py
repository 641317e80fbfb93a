"""Lets a crash of native code leave the Python stack in the record."""

from __future__ import annotations

import faulthandler
import sys
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING

from epochal.errors import LeaseLostError
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
    path = None if run.log_dir is None else _find_path(run.log_dir, run.rank)
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
            with suppress(OSError, LeaseLostError):
                run.writer.require_lease()
                if not path.stat().st_size:
                    path.unlink()


def _find_path(folder: Path, rank: int) -> Path:
    path = folder / CRASH_FILE_NAME
    return path.with_stem(f"{path.stem}.rank{rank}") if rank else path


def _open(path: Path) -> IO[str] | None:
    """The file, without the crash of an earlier process; None if it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("w", encoding="utf-8")
    except OSError:  # the run reports if it cannot write either
        return None
