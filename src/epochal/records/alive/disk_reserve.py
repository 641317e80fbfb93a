"""A little space that a run keeps for its last words, should the disk be full when it ends."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from epochal import durable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RESERVE_FILE = "reserve"
RESERVE_BYTES = 64 * 1024
"""Room for a result with a traceback, a status, a mail, and copies of it for who else is told."""


@contextmanager
def reserving_disk_space(folder: Path) -> Iterator[None]:
    """Keep space in a folder as long as a block lasts, or until it is given up."""
    with suppress(OSError):  # nothing to keep; whatever else is written there says so
        durable.write_bytes(folder / RESERVE_FILE, os.urandom(RESERVE_BYTES))  # no disk packs that
    try:
        yield
    finally:
        release_reserve(folder)


def release_reserve(folder: Path) -> None:
    """Let others, such as the result and the status, have the space."""
    with suppress(OSError):
        durable.remove_file(folder / RESERVE_FILE)
