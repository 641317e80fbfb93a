"""A little space that a run keeps for its last words, should the disk be full when it ends."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from epochal import durable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE_NAME = "reserve"
SIZE_BYTES = 64 * 1024
"""Room for a result with a traceback, a status, a mail, and copies of it for who else is told."""


@contextmanager
def reserving(folder: Path) -> Iterator[None]:
    """Keep space in a folder as long as a block lasts, or until it is given up."""
    with suppress(OSError):  # nothing to keep; whatever else is written there says so
        durable.write_bytes(folder / FILE_NAME, os.urandom(SIZE_BYTES))  # no disk packs that
    try:
        yield
    finally:
        give_up(folder)


def give_up(folder: Path) -> None:
    """Let others, such as the result and the status, have the space."""
    with suppress(OSError):
        durable.remove_file(folder / FILE_NAME)
