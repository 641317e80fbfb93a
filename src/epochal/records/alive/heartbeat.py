"""The heartbeat of a run: a thread that touches a file, so that other machines see it is alive."""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from epochal import durable
from epochal.records.layout.process import host_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
        facts = durable.decode_json(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    seconds = facts.get("beat_seconds") if isinstance(facts, dict) else None
    beat = seconds if isinstance(seconds, int | float) and seconds > 0 else BEAT_SECONDS
    return time.time() - last > STALE_AFTER_BEATS * beat
