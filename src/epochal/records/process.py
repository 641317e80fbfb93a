"""Whether the process that wrote a record still lives."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def host_name() -> str:
    """The name of this machine."""
    return platform.node()


def process_token(pid: int) -> str:
    """What tells a process from a later one with the same number; empty when unknown."""
    fields = _stat_fields(pid)
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""
    return f"{boot}:{fields[19]}" if len(fields) > 19 else ""  # 19: start in ticks since boot


def is_gone(pid: int, *, host: str, token: str = "") -> bool:
    """Whether that process surely ended; False when it ran on another machine."""
    if host != host_name() or pid <= 0:
        return False
    if token and process_token(os.getpid()):
        return process_token(pid) != token or _stat_fields(pid)[0] in "ZX"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # it lives, but belongs to somebody else
        return False
    return False


def _stat_fields(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()  # the name before it may hold blanks and brackets
