"""The folder for what belongs to all runs together: ``.epochal`` beside them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from epochal import durable

if TYPE_CHECKING:
    from pathlib import Path

EPOCHAL_DIR = ".epochal"
"""Its name below the folder of all runs; whoever walks over runs leaves it out."""

_IGNORE = "# Written by Epochal: nothing in here belongs into a repository.\n*\n"


def make_epochal_dir(root: Path) -> Path:
    """The folder for all runs below ``root``; made if it is not there.

    Args:
        root: Folder of all runs, as ``record.log_dir`` names it.

    Raises:
        OSError: It is not there and cannot be made.
    """
    home = root / EPOCHAL_DIR
    if not home.is_dir():
        try:
            durable.make_dir(home)
        except durable.WriteError:
            if not home.is_dir():  # else another process made it in the meantime
                raise
        with suppress(OSError):
            durable.write_text(home / ".gitignore", _IGNORE)
    return home
