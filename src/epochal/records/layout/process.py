"""Identifies processes, and tells whether one has ended."""

from __future__ import annotations

import os
import platform
from pathlib import Path

_START_FIELD = 19  # of /proc/PID/stat after the name: when it started, in ticks since boot


def host_name() -> str:
    """The name of this machine."""
    return platform.node()


def process_token(pid: int) -> str:
    """Distinguishes a process from a later one with the same pid; empty when unknown."""
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()  # the name may contain spaces
    boot = _read("/proc/sys/kernel/random/boot_id").strip()
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


def _read(name: str) -> str:
    try:
        return Path(name).read_text("utf-8", "replace")
    except OSError:
        return ""
