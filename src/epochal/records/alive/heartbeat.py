"""The heartbeat of a run: a sign of life on disk that does not wait for a step to end."""

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
"""After how many beats without a sign a process of another machine counts as gone."""


@contextmanager
def writing_heartbeat(folder: Path, *, seconds: float = BEAT_SECONDS) -> Iterator[None]:
    """Give a sign of life in a folder every so many seconds, as long as a block lasts.

    A thread does it, so that a long step, evaluation or construction does not look like death.
    """
    path, is_over = folder / HEARTBEAT_FILE, threading.Event()
    facts = {"host": host_name(), "pid": os.getpid(), "beat_seconds": seconds}
    with suppress(OSError):  # the disk may be full; whatever else is written there says so
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
    """Whether a run that gave signs of life has given none for two beats.

    Without a heartbeat nobody can say, so it is False. Clocks of machines that share files must
    agree; `epochal doctor` looks at that.
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
