"""Folders that appear and disappear whole, and links that are replaced at once."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, final

from epochal.durable import system
from epochal.durable.files import Hasher, filler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from epochal.durable.blobs import Blob

STAGING = ".staging-"
"""How the names of folders begin that are not complete."""

REMOVING = ".removing-"
"""How the names of folders begin that are on their way out."""

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)


@final
class StagedDir:
    """A folder that is being filled beside its final place; each of its files is synced."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write_bytes(self, name: str, data: bytes) -> str:
        """Put ``data`` into the file ``name``; returns its SHA-256."""
        import hashlib

        system.create(self.path / name, lambda file: system.write_all(file, data))
        return hashlib.sha256(data).hexdigest()

    def write_safetensors(self, name: str, tensors: Mapping[str, Blob]) -> str:
        """Put tensors into the file ``name``; returns its SHA-256."""
        with Hasher() as hasher:
            system.create(self.path / name, filler(tensors, {"format": "pt"}, hasher))
            return hasher.digest()


@contextmanager
def staged_dir(target: Path, owner: str) -> Iterator[StagedDir]:
    """A folder to fill, which gets the name ``target`` when the block ends, and not before.

    Whatever goes wrong, ``target`` is there whole and synced, or not at all. ``target`` must
    be free; ``owner`` tells ``remove_stale`` who was at work.
    """
    staging = target.with_name(f"{STAGING}{target.name}-{owner}")
    with system.explained(target):
        if target.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        system.operations.mkdir(staging)
        try:
            yield StagedDir(staging)
            system.sync_dir(staging)
            system.operations.replace(staging, target)
        except BaseException:
            with suppress(OSError):
                _remove(staging)
            raise
        system.sync_dir(target.parent)


def replace_link(path: Path, name: str) -> None:
    """Let ``path`` point to its neighbour ``name``, at once; a text file where links cannot be."""
    temporary = system.temporary_name(path)
    with system.explained(path):
        try:
            system.operations.symlink(name, temporary)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            system.stage(path, lambda file: system.write_all(file, name.encode()))
            return
        try:
            system.operations.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                system.operations.unlink(temporary)
            raise
        system.sync_dir(path.parent)


def rename(path: Path, target: Path) -> None:
    """Give a file or folder another name beside the old one, durably."""
    with system.explained(path, "renamed"):
        system.operations.replace(path, target)
        system.sync_dir(path.parent)


def remove_tree(path: Path, owner: str) -> None:
    """Remove a folder such that nobody sees half of it: it is renamed first."""
    with system.explained(path, "removed"):
        gone = path.with_name(f"{REMOVING}{path.name}-{owner}")
        system.operations.replace(path, gone)
        system.sync_dir(path.parent)
        _remove(gone)


def remove_stale(folder: Path, is_stale: Callable[[str], bool]) -> list[str]:
    """Remove what ``staged_dir`` and others left in ``folder`` when they were killed.

    ``is_stale`` is asked about each owner. Returns the names that were removed.
    """
    removed = []
    with system.explained(folder, "cleaned"), suppress(FileNotFoundError):
        for path in sorted(folder.iterdir()):
            owner = _owner(path.name)
            if owner and is_stale(owner):
                _remove(path)
                removed.append(path.name)
    return removed


def _owner(name: str) -> str:
    if name.startswith((STAGING, REMOVING)):
        return name.rpartition("-")[2]
    if name.startswith(".") and name.endswith(".tmp"):
        return name.removesuffix(".tmp").rpartition(".")[2].partition("-")[0]
    return ""


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        for child in sorted(path.iterdir()):
            _remove(child)
        system.operations.rmdir(path)
    else:
        system.operations.unlink(path)
