"""The lock and heartbeat of the process that works on a run folder, and reserved disk space."""

from __future__ import annotations

import math
import os
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, final

from epochal import durable
from epochal.errors import LeaseLostError, RecordError
from epochal.records.layout.os_errors import raising_record_errors
from epochal.records.layout.process import (
    describe_process,
    host_name,
    is_on_this_machine,
    is_owner_gone,
    shares_process_ids,
    utc_now,
)
from epochal.records.layout.stop_request import read_stop_request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

LEASE_FILE = "lease.json"
HEARTBEAT_FILE = "heartbeat.json"
BEAT_SECONDS = 15.0
WATCH_SECONDS = 2.0
"""How often a process checks for a stop request, and whether it still owns its folder."""

STALE_AFTER_BEATS = 4
"""Missed heartbeats after which a process that cannot be tested counts as gone."""

_LIVENESS_FILES = (HEARTBEAT_FILE, LEASE_FILE, "status.json", "metrics.bin")


@final
class Lease:
    """The exclusive right of this process to work on a folder: a file that it keeps locked."""

    def __init__(self, folder: Path) -> None:
        self.loss = ""
        """Why this process no longer owns the folder; empty while it does."""

        self.on_loss: Callable[[str], None] = _ignore
        """Called once with the reason, by the thread that notices."""

        self.on_stop_request: Callable[[str], None] = _ignore
        """The same for a request to stop."""

        self._is_asked = False
        self._folder, self._path = folder, folder / LEASE_FILE
        self._pid = os.getpid()
        owner = describe_process(self._pid) | {"time": utc_now()}
        with raising_record_errors(), durable.locked(folder):
            _require_free(folder)
            self._file = durable.LockedFile(self._path, owner)

    def is_held(self) -> bool:
        """Whether this process still owns the folder; a lost lease stays lost."""
        if not self.loss and (loss := self._find_loss_reason()):
            self.loss = loss
            self.on_loss(loss)
        return not self.loss

    def watch(self) -> bool:
        """Check for a stop request, and whether this process still owns the folder."""
        if not self._is_asked and (reason := read_stop_request(self._folder)):
            self._is_asked = True
            self.on_stop_request(reason)
        return self.is_held()

    def require(self) -> None:
        """Raise LeaseLostError if this process no longer owns the folder."""
        if not self.is_held():
            raise LeaseLostError(
                f"{self._folder}: {self.loss}\n"
                "  this process stopped, and writes nothing more there"
            )

    def _find_loss_reason(self) -> str:
        try:
            if self._file.is_current():
                return ""
        except OSError:  # a network file system may be unavailable for a while
            return ""
        if not (self._folder / "status.json").exists():  # a late write may create the folder again
            return "the folder of the run was deleted or moved"
        owner = durable.find_object(self._path)
        if not owner:
            return f"{LEASE_FILE} was deleted"
        return f"process {owner.get('pid')} on {owner.get('host')} took over the run"

    def release(self) -> None:
        """Release it; does nothing in a forked process, or if another process holds it now."""
        if os.getpid() != self._pid:
            return
        with suppress(OSError):
            if self._file.is_current():
                durable.remove_file(self._path)
        self._file.close()


def _ignore(loss: str) -> None:
    pass


@contextmanager
def holding_lease(folder: Path) -> Iterator[Lease]:
    """Hold the lease of ``folder`` in a block; raises RecordError if a living process holds it."""
    lease = Lease(folder)
    try:
        yield lease
    finally:
        lease.release()


def _require_free(folder: Path) -> None:
    owner = durable.find_object(folder / LEASE_FILE)
    if not is_owner_alive(folder, owner, now=_file_system_time(folder)):
        return
    pid, host = owner.get("pid"), owner.get("host")
    since = f" since {owner['time']}" if isinstance(owner.get("time"), str) else ""
    hint = "wait for its end, or stop it first"
    if not shares_process_ids(owner):
        hint = f"if that process has certainly ended, delete {folder / LEASE_FILE}"
    elif pid == os.getpid():
        hint = "end that run before you resume it"
    raise RecordError(f"{folder}: process {pid} on {host} is working on this run{since}\n  {hint}")


def is_owner_alive(folder: Path, owner: Mapping[str, Any], *, now: float | None = None) -> bool:
    """Whether the process that ``lease.json`` or ``status.json`` names works on a run.

    The lock of the lease decides, since it ends with its process. Where it cannot be tested, on
    another machine or a file system without locks, a recent sign of life decides. ``now`` is the
    time of the file system, by default that of this machine.
    """
    is_locked = durable.is_locked(folder / LEASE_FILE)
    if is_locked:
        return True
    if not isinstance(owner.get("pid"), int) or not isinstance(owner.get("host"), str):
        return False
    if is_on_this_machine(owner):
        if is_locked is False and "namespace" in owner:  # earlier versions held no lock
            return False
        if shares_process_ids(owner):
            return not is_owner_gone(owner)
    last = _last_write_time(folder)
    if owner["host"] == host_name() and not is_on_this_machine(owner) and last < _boot_time():
        return False  # it did not survive the reboot
    return (time.time() if now is None else now) - last <= STALE_AFTER_BEATS * _read_beat(folder)


def _last_write_time(folder: Path) -> float:
    """When the process of a run last wrote a file; 0.0 if it never did."""
    times = [0.0]
    for name in _LIVENESS_FILES:
        with suppress(OSError):
            times.append((folder / name).stat().st_mtime)
    return max(times)


def _read_beat(folder: Path) -> float:
    seconds = durable.find_object(folder / HEARTBEAT_FILE).get("beat_seconds")
    return seconds if isinstance(seconds, int | float) and seconds > 0 else BEAT_SECONDS


def _boot_time() -> float:
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return 0.0 if clock is None else time.time() - time.clock_gettime(clock)


def _file_system_time(folder: Path) -> float:
    try:
        os.utime(folder)
        return folder.stat().st_mtime
    except OSError:
        return time.time()


@contextmanager
def writing_heartbeat(
    folder: Path, *, seconds: float = BEAT_SECONDS, is_owner: Callable[[], bool] = lambda: True
) -> Iterator[None]:
    """Touch the heartbeat of a folder every ``seconds`` in a block, while ``is_owner`` is true.

    A thread does it, so that a long step or evaluation does not look like a crash. It calls
    ``is_owner`` more often than that: a user who asked the run to stop is waiting.
    """
    path, is_over = folder / HEARTBEAT_FILE, threading.Event()
    facts = {"host": host_name(), "pid": os.getpid(), "beat_seconds": seconds}
    with suppress(OSError):  # the disk may be full; later writes report it
        durable.write_json(path, facts)

    def beat() -> None:
        looks_per_beat = math.ceil(seconds / WATCH_SECONDS)
        looks = 0
        while not is_over.wait(seconds / looks_per_beat) and is_owner():
            looks += 1
            if looks % looks_per_beat == 0:
                with suppress(OSError):
                    os.utime(path)

    thread = threading.Thread(target=beat, name="epochal-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


RESERVE_FILE = "reserve"
RESERVE_BYTES = 64 * 1024
"""Enough for a result with a traceback, a status, and a mail to several recipients."""


@contextmanager
def reserving_disk_space(folder: Path, lease: Lease | None = None) -> Iterator[None]:
    """Reserve space in a folder during a block, or until ``release_reserve``."""
    with suppress(OSError):  # the disk is full already; later writes report it
        durable.write_bytes(
            folder / RESERVE_FILE, os.urandom(RESERVE_BYTES)
        )  # random bytes cannot be compressed
    try:
        yield
    finally:
        if lease is None or not lease.loss:
            release_reserve(folder)


def release_reserve(folder: Path) -> None:
    """Free the space for the result, the status and mails."""
    with suppress(OSError):
        durable.remove_file(folder / RESERVE_FILE)
