"""Files and folders that only this user can read."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from epochal import durable
from epochal.errors import RecordError

if TYPE_CHECKING:
    from pathlib import Path


def make_private_dir(path: Path) -> Path:
    """The folder, created for this user alone if it is missing.

    Raises:
        RecordError: It belongs to another user, or is a link.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    if path.is_symlink() or not path.is_dir():
        raise RecordError(f"{path}: is not a folder\n  remove it")
    if hasattr(os, "getuid"):
        if path.stat().st_uid != os.getuid():
            raise RecordError(f"{path}: belongs to another user\n  ask them to remove it")
        path.chmod(0o700)
    return path


def write_private(path: Path, data: bytes) -> None:
    """Write a file inside a private folder."""
    durable.write_bytes(path, data)
    path.chmod(0o600)
