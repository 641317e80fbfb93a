"""Closes the connections of gloo, which stay open while anything refers to its group."""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_FD_DIR = next((Path(one) for one in ("/proc/self/fd", "/dev/fd") if Path(one).is_dir()), None)


class Connection(NamedTuple):
    """An open socket: its number, which the system gives to other files once it is closed."""

    file: int
    inode: int


@contextmanager
def record_connections(found: list[Connection], store_port: int) -> Iterator[None]:
    """Add the connections that a block makes to a list, without those to the store."""
    before = _list_descriptors()
    yield
    for file in sorted(_list_descriptors() - before):
        with suppress(OSError), socket.socket(fileno=os.dup(file)) as one:
            is_tcp = one.family in (socket.AF_INET, socket.AF_INET6)
            if is_tcp and one.getpeername()[1] != store_port:
                found.append(Connection(file, os.fstat(file).st_ino))


def shut_down(connections: list[Connection]) -> None:
    """Close connections, so that processes that wait at the other ends get an error."""
    for file, inode in connections:
        with suppress(OSError), socket.socket(fileno=os.dup(file)) as one:
            if os.fstat(one.fileno()).st_ino == inode:
                one.shutdown(socket.SHUT_RDWR)
    connections.clear()


def _list_descriptors() -> set[int]:
    return set() if _FD_DIR is None else {int(name) for name in os.listdir(_FD_DIR)}  # noqa: PTH208 - only names
