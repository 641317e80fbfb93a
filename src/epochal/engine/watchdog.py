"""Notices when a run stands still, and writes down what every thread is doing then."""

from __future__ import annotations

import faulthandler
import logging
import threading
import time
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from epochal.engine.run import Run

_LOOKS = 8
_LONGEST_PAUSE_SECONDS = 30.0

_logger = logging.getLogger(__name__)


@final
class Watchdog:
    """Looks at a run from outside; steps and batches of evaluations are its signs of progress.

    Args:
        run: What it looks at; the run itself does nothing for it.
        seconds: How long it may stand still.
        now: Seconds on a clock that never goes back.
    """

    def __init__(
        self, run: Run, seconds: float, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._run = run
        self._seconds = seconds
        self._now = now
        self._seen = self._position()
        self._since = now()
        self._has_told = False

    def look(self) -> None:
        """Tell once, in the log and in the record, if nothing has happened for too long."""
        position, now = self._position(), self._now()
        if position != self._seen:
            self._seen, self._since, self._has_told = position, now, False
        elif now - self._since >= self._seconds and not self._has_told:
            self._has_told = True
            self._tell(now - self._since)

    def _position(self) -> tuple[object, ...]:
        run = self._run
        return run.has_started, run.epoch, run.step, run.split, run.loader_name, run.batch_index

    def _tell(self, seconds: float) -> None:
        run, where = self._run, None
        try:
            if run.dir is not None:
                where = write_stacks(run.dir / "logs")
            run.writer.event(
                "hang", step=run.step, split=run.split, seconds=round(seconds), stacks=str(where)
            )
        except Exception as error:  # a thread that looks on must not disturb anybody
            _logger.warning("the hang below could not be recorded: %s", error)
        _logger.warning(
            "nothing has happened for %.0f s in %s at step %d: %s; engine.hang_after=0 does not "
            "look, or set a longer time",
            seconds,
            run.split,
            run.step,
            f"what all threads are doing is in {where}" if where else "is something stuck?",
        )


@contextmanager
def watching(run: Run) -> Iterator[None]:
    """Look at a run every now and then, from a thread of its own, as long as a block lasts."""
    period = run.options.engine.hang_after
    if period.is_never:
        yield
        return
    seconds, is_over = float(period.amount), threading.Event()
    watchdog = Watchdog(run, seconds)

    def look_on() -> None:
        while not is_over.wait(min(seconds / _LOOKS, _LONGEST_PAUSE_SECONDS)):
            watchdog.look()

    thread = threading.Thread(target=look_on, name="epochal-watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def write_stacks(folder: Path) -> Path:
    """Write what every thread is doing into a new file of a folder, and give its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"stacks-{datetime.now().astimezone():%Y%m%d-%H%M%S}.txt"
    with path.open("w", encoding="utf-8") as file:
        faulthandler.dump_traceback(file, all_threads=True)
    return path
