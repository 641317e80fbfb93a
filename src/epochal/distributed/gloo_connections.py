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
    before = _list_connections()
    yield
    after = _list_connections()
    found += [one for one in after if one not in before and after[one] != store_port]


def shut_down(connections: list[Connection]) -> None:
    """Close connections, so that processes that wait at the other ends get an error."""
    for file, inode in connections:
        with suppress(OSError), socket.socket(fileno=os.dup(file)) as one:
            if os.fstat(one.fileno()).st_ino == inode:
                one.shutdown(socket.SHUT_RDWR)
    connections.clear()


def _list_connections() -> dict[Connection, int]:
    """The open TCP connections of this process, and the port of the other end."""
    ports: dict[Connection, int] = {}
    for name in () if _FD_DIR is None else os.listdir(_FD_DIR):  # noqa: PTH208 - only names
        with suppress(OSError), socket.socket(fileno=os.dup(int(name))) as one:
            if one.family in (socket.AF_INET, socket.AF_INET6):
                inode = os.fstat(one.fileno()).st_ino
                ports[Connection(int(name), inode)] = one.getpeername()[1]
    return ports
