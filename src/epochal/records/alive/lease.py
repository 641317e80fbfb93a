"""The lease of a run folder: one process works on it at a time; dead processes lose theirs."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, final

from epochal import durable
from epochal.errors import RecordError
from epochal.records.layout.os_errors import raising_record_errors
from epochal.records.layout.process import describe_process, host_name, is_owner_gone, utc_now

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LEASE_FILE = "lease.json"
STALE_SECONDS = 600.0
"""Seconds without a sign after which a process on another machine counts as dead."""


@final
class Lease:
    """The exclusive right of this process to work on a folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LEASE_FILE
        self._owner = describe_process(os.getpid()) | {"time": utc_now()}
        with _locked_folder(folder), raising_record_errors():
            _require_free(folder, durable.find_object(self._path))
            durable.write_json(self._path, self._owner)

    def release(self) -> None:
        """Release it; does nothing if another process holds it now."""
        if _identity(durable.find_object(self._path)) == _identity(self._owner):
            with suppress(OSError):
                durable.remove_file(self._path)


@contextmanager
def holding_lease(folder: Path) -> Iterator[None]:
    """Hold the lease of ``folder`` in a block.

    Raises:
        RecordError: A living process holds it.
    """
    lease = Lease(folder)
    try:
        yield
    finally:
        lease.release()


def _identity(owner: dict[str, Any]) -> tuple[object, ...]:
    return owner.get("host"), owner.get("pid"), owner.get("process")


def _require_free(folder: Path, owner: dict[str, Any]) -> None:
    if is_owner_gone(owner):
        return
    host, pid = owner["host"], owner["pid"]
    if host != host_name() and _is_stale(folder):
        return
    since = f" since {owner['time']}" if isinstance(owner.get("time"), str) else ""
    hint = "wait for its end, or stop it first"
    if host != host_name():
        hint = f"if it is surely gone, delete {folder / LEASE_FILE}"
    elif pid == os.getpid():
        hint = "end that run before you resume it"
    raise RecordError(f"{folder}: process {pid} on {host} works on this run{since}\n  {hint}")


def _is_stale(folder: Path) -> bool:
    """Whether the run wrote nothing for long, by the clock of the file system."""
    signs = (folder / name for name in (LEASE_FILE, "status.json", "heartbeat.json", "metrics.bin"))
    times = []
    for sign in signs:
        with suppress(OSError):
            times.append(sign.stat().st_mtime)
    return _file_system_time(folder) - max(times, default=0.0) > STALE_SECONDS


def _file_system_time(folder: Path) -> float:
    try:
        os.utime(folder)
        return folder.stat().st_mtime
    except OSError:
        return datetime.now(UTC).timestamp()


@contextmanager
def _locked_folder(folder: Path) -> Iterator[None]:
    """Lock out other processes of this machine while the lease is checked and taken."""
    if sys.platform == "win32":  # Windows cannot open folders
        yield
        return
    with raising_record_errors():
        descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems cannot lock
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
