"""Describes processes and times as records store them, and finds whether a process has ended."""

from __future__ import annotations

import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_START_FIELD = 19  # field of /proc/PID/stat after the name: start time in ticks since boot


def host_name() -> str:
    """The name of this machine."""
    return platform.node()


def utc_now() -> str:
    """The current time in UTC, as records store it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def describe_process(pid: int) -> dict[str, Any]:
    """The entries in a file that identify a process of this machine: ``process`` is boot and start.

    Containers have the same host name and different namespaces of process ids, or vice versa.
    """
    return {
        "pid": pid,
        "host": host_name(),
        "process": process_token(pid),
        "namespace": _pid_namespace(),
    }


def _pid_namespace() -> int:
    """The namespace of this process's ids; 0 where there are none."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def is_on_this_machine(owner: Mapping[str, Any]) -> bool:
    """Whether the process of ``describe_process`` was started since the last boot of this machine.

    Host names are compared only if one of the boots is unknown.
    """
    mine, token = process_token(os.getpid()), owner.get("process")
    if mine and isinstance(token, str) and token:
        return token.partition(":")[0] == mine.partition(":")[0]
    return owner.get("host") == host_name()


def shares_process_ids(owner: Mapping[str, Any]) -> bool:
    """Whether the pid of ``describe_process`` means the same process here."""
    return is_on_this_machine(owner) and owner.get("namespace") in (None, _pid_namespace())


def is_owner_gone(owner: Mapping[str, Any]) -> bool:
    """Whether the process of ``describe_process`` has ended; True for damaged entries.

    False for another host or container; processes of an earlier boot of this host have ended.
    """
    pid, host, token = (owner.get(name) for name in ("pid", "host", "process"))
    if not isinstance(pid, int) or not isinstance(host, str):
        return True
    if host == host_name() and is_on_this_machine(owner) and not shares_process_ids(owner):
        return False
    return is_process_gone(pid, host=host, token=token if isinstance(token, str) else "")


def process_token(pid: int) -> str:
    """Distinguishes a process from a later one with the same pid; empty when unknown."""
    fields = (
        read_text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    )  # the name may contain spaces
    boot = read_text(Path("/proc/sys/kernel/random/boot_id")).strip()
    if not boot or len(fields) <= _START_FIELD or fields[0] in "ZX":  # a zombie has ended
        return ""
    return f"{boot}:{fields[_START_FIELD]}"


def is_process_gone(pid: int, *, host: str, token: str = "") -> bool:
    """Whether a process has certainly ended; False for another host."""
    if host != host_name() or pid <= 0:
        return False
    if token and process_token(os.getpid()):
        return process_token(pid) != token
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # it is alive, but belongs to another user
        return False
    return False


def read_text(path: Path) -> str:
    """The text of a file; empty if it cannot be read."""
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def is_in_foreground() -> bool:
    """Whether this process is in the foreground of a terminal and writes to it."""
    try:
        return sys.stdout.isatty() and os.tcgetpgrp(sys.stdout.fileno()) == os.getpgrp()
    except (OSError, ValueError):  # another terminal than its own, or a closed file
        return False
