"""The folder ``.epochal`` beside the runs: index, mailbox and shared code."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from epochal import durable

if TYPE_CHECKING:
    from pathlib import Path

EPOCHAL_DIR = ".epochal"
"""Name of the folder below the folder of all runs; a search for runs skips it."""

INDEX_FILE = "index.db"
"""Name of the index of all runs in this folder."""

_IGNORE = "# Written by Epochal: nothing in here belongs into a repository.\n*\n"


def make_epochal_dir(root: Path) -> Path:
    """The folder ``.epochal`` below ``root``, created if missing.

    Args:
        root: Folder of all runs, as ``record.log_dir`` names it.

    Raises:
        OSError: It cannot be created.
    """
    home = root / EPOCHAL_DIR
    if not home.is_dir():
        try:
            durable.make_dir(home)
        except durable.WriteError:
            if not home.is_dir():  # otherwise another process created it first
                raise
        with suppress(OSError):
            durable.write_text(home / ".gitignore", _IGNORE)
    return home
