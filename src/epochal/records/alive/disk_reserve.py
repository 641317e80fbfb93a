"""Reserves disk space for the last writes of a run, in case the disk is full when it ends."""

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
"""Enough for a result with a traceback, a status, and a mail to several recipients."""


@contextmanager
def reserving_disk_space(folder: Path) -> Iterator[None]:
    """Reserve space in a folder during a block, or until ``release_reserve``."""
    with suppress(OSError):  # the disk is full already; later writes report it
        durable.write_bytes(
            folder / RESERVE_FILE, os.urandom(RESERVE_BYTES)
        )  # random bytes cannot be compressed
    try:
        yield
    finally:
        release_reserve(folder)


def release_reserve(folder: Path) -> None:
    """Free the space for the result, the status and mails."""
    with suppress(OSError):
        durable.remove_file(folder / RESERVE_FILE)
