"""Anything but a regular file, in place of a file that Epochal reads."""

from __future__ import annotations

import os
import shutil
import socket
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

CONTENT = "of another folder\n"


class OddFiles:
    """Puts links, pipes, devices, sockets and folders at a path; ``target`` is what links name."""

    content = CONTENT

    def __init__(self, folder: Path) -> None:
        self.target = folder / "target"
        self.target.write_text(CONTENT)
        self.kinds = ("link", "zeros", "pipe", "socket", "folder", "dangling", *_devices(folder))

    def __call__(self, kind: str, path: Path) -> None:
        """Replace the file at ``path``, if there is one."""
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        if kind == "link":
            path.symlink_to(self.target)
        elif kind == "zeros":
            path.symlink_to("/dev/zero")
        elif kind == "dangling":
            path.symlink_to(self.target.with_name("nothing"))
        elif kind == "pipe":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        elif kind == "device":
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # the device /dev/zero
        else:
            _bind_socket(path)

    def is_untouched(self) -> bool:
        """Whether nothing was written through a link."""
        return self.target.read_text() == CONTENT and {
            path.name for path in self.target.parent.iterdir()
        } <= {"target", "device"}


def _devices(folder: Path) -> tuple[str, ...]:
    """Only root can make a device."""
    with suppress(OSError):
        os.mknod(folder / "device", stat.S_IFCHR | 0o666, os.makedev(1, 5))
        os.close(os.open(folder / "device", 0))
        return ("device",)
    return ()


def _bind_socket(path: Path) -> None:
    # A path of a socket has at most 107 characters.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)
