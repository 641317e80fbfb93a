"""Signs that a process works on a run folder: its lease, its heartbeat, and reserved disk space."""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, final

from epochal import durable
from epochal.errors import RecordError
from epochal.records.layout.os_errors import raising_record_errors
from epochal.records.layout.process import describe_process, host_name, is_owner_gone, utc_now

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
        with raising_record_errors(), durable.locked(folder):
            _require_free(folder, durable.find_object(self._path))
            durable.write_json(self._path, self._owner)

    def release(self) -> None:
        """Release it; does nothing if another process holds it now."""
        if _identity(durable.find_object(self._path)) == _identity(self._owner):
            with suppress(OSError):
                durable.remove_file(self._path)


@contextmanager
def holding_lease(folder: Path) -> Iterator[None]:
    """Hold the lease of ``folder`` in a block; raises RecordError if a living process holds it."""
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


HEARTBEAT_FILE = "heartbeat.json"
BEAT_SECONDS = 15.0
STALE_AFTER_BEATS = 2
"""Beats without a sign after which a process on another machine counts as lost."""


@contextmanager
def writing_heartbeat(folder: Path, *, seconds: float = BEAT_SECONDS) -> Iterator[None]:
    """Touch the heartbeat of a folder every ``seconds`` during a block.

    A thread does it, so that a long step or evaluation does not look like a crash.
    """
    path, is_over = folder / HEARTBEAT_FILE, threading.Event()
    facts = {"host": host_name(), "pid": os.getpid(), "beat_seconds": seconds}
    with suppress(OSError):  # the disk may be full; later writes report it
        durable.write_json(path, facts)

    def beat() -> None:
        while not is_over.wait(seconds):
            with suppress(OSError):
                os.utime(path)

    thread = threading.Thread(target=beat, name="epochal-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def is_heartbeat_stale(folder: Path) -> bool:
    """Whether the heartbeat of a run is older than two beats; False without a heartbeat.

    The clocks of machines that share files must agree; `epochal doctor` checks that.
    """
    path = folder / HEARTBEAT_FILE
    try:
        last = path.stat().st_mtime
        facts = durable.decode_json(durable.read_bytes(path))
    except (OSError, ValueError, RecursionError):
        return False
    seconds = facts.get("beat_seconds") if isinstance(facts, dict) else None
    beat = seconds if isinstance(seconds, int | float) and seconds > 0 else BEAT_SECONDS
    return time.time() - last > STALE_AFTER_BEATS * beat


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
