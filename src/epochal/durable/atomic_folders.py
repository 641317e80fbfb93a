"""Folders that appear and disappear atomically, and links that are replaced atomically."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, final

from epochal.durable import system
from epochal.durable.atomic_files import Hasher, tensor_writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from epochal.durable.safetensors_layout import Blob

STAGING = ".staging-"
"""Prefix of folders that are not complete."""

REMOVING = ".removing-"
"""Prefix of folders that are being removed."""

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
            system.create(self.path / name, tensor_writer(tensors, {"format": "pt"}, hasher))
            return hasher.digest()


@contextmanager
def staged_dir(target: Path, owner: str) -> Iterator[StagedDir]:
    """A folder to fill, which gets the name ``target`` when the block ends, and not before.

    After any failure ``target`` is complete and synced, or missing. It must not exist before;
    ``owner`` tells ``remove_stale`` who wrote it.
    """
    staging = target.with_name(f"{STAGING}{target.name}-{owner}")
    with system.write_errors(target):
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
    """Point ``path`` to its neighbour ``name``, atomically; a text file without symlinks."""
    temporary = system.temporary_name(path)
    with system.write_errors(path):
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
    """Rename a file or folder within its folder, durably."""
    with system.write_errors(path, "renamed"):
        system.operations.replace(path, target)
        system.sync_dir(path.parent)


def remove_tree(path: Path, owner: str) -> None:
    """Remove a folder atomically: it is renamed first."""
    with system.write_errors(path, "removed"):
        gone = path.with_name(f"{REMOVING}{path.name}-{owner}")
        system.operations.replace(path, gone)
        system.sync_dir(path.parent)
        _remove(gone)


def remove_stale(folder: Path, is_stale: Callable[[str], bool]) -> list[str]:
    """Remove temporary files and folders that killed processes left in ``folder``.

    ``is_stale`` decides by the owner. Returns the names that were removed.
    """
    removed = []
    with system.write_errors(folder, "cleaned"), suppress(FileNotFoundError):
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
