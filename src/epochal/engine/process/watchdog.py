"""Notices when a run stands still, and writes down what every thread is doing then."""

from __future__ import annotations

import faulthandler
import logging
import threading
import time
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from epochal.engine.run import Run

STACKS_FILE_NAME = "stacks.txt"
"""What threads were doing in a hang, in the folder ``logs`` of a run."""

_CHECKS_PER_PERIOD = 8
_LONGEST_PAUSE_SECONDS = 30.0

_logger = logging.getLogger(__name__)


@final
class Watchdog:
    """Looks at a run from outside; steps and batches of evaluations are its signs of progress.

    Args:
        run: What it looks at; the run itself does nothing for it.
        seconds: How long it may stand still.
        stacks: Where to write what all threads are doing; None writes it nowhere.
        now: Seconds on a clock that never goes back.
    """

    def __init__(
        self,
        run: Run,
        seconds: float,
        *,
        stacks: TextIO | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = run
        self._seconds = seconds
        self._stacks = stacks
        self._now = now
        self._seen = self._position()
        self._since = self._looked = now()
        self._has_warned = False

    def look(self) -> None:
        """Tell once, in the log and in the record, if nothing has happened for too long."""
        position, now = self._position(), self._now()
        away, self._looked = now - self._looked, now
        self._arm()
        if away >= self._seconds:
            self._tell(away, is_held=True)
            self._has_warned = True
        elif position == self._seen and now - self._since >= self._seconds and not self._has_warned:
            self._has_warned = True
            self._tell(now - self._since)
        if position != self._seen:
            self._seen, self._since, self._has_warned = position, now, False

    def _arm(self) -> None:
        """Have the stacks written if this is not called again in time.

        A call into C code that never lets go of the interpreter stops every thread of Python,
        this one too; faulthandler needs none. It has one clock for the whole process.
        """
        if self._stacks is not None:
            faulthandler.dump_traceback_later(self._seconds, file=self._stacks)

    def disarm(self) -> None:
        """Write nothing any more."""
        if self._stacks is not None:
            faulthandler.cancel_dump_traceback_later()

    def _position(self) -> tuple[object, ...]:
        run = self._run
        return run.has_started, run.epoch, run.step, run.split, run.loader_name, run.batch_index

    def _tell(self, seconds: float, *, is_held: bool = False) -> None:
        run, where = self._run, None if self._stacks is None else self._stacks.name
        try:
            if self._stacks is not None and not is_held:  # those are written already
                write_stacks(self._stacks)
            run.writer.event(
                "hang", step=run.step, split=run.split, seconds=round(seconds), stacks=str(where)
            )
        except Exception as error:  # a thread that looks on must not disturb anybody
            _logger.warning("the hang below could not be recorded: %s", error)
        _logger.warning(
            "nothing has happened for %.0f s in %s at step %d%s: %s; engine.hang_after=0 does not "
            "look, or set a longer time",
            seconds,
            run.split,
            run.step,
            ", in a call that lets no other thread run" if is_held else "",
            f"what all threads are doing is in {where}" if where else "is something stuck?",
        )
        run.on_stall(f"nothing for {seconds:.0f} s in {run.split} at step {run.step}", run.step)


@contextmanager
def watching_for_hangs(run: Run) -> Iterator[None]:
    """Look at a run every now and then, from a thread of its own, as long as a block lasts."""
    period = run.options.engine.hang_after
    if period.is_never:
        yield
        return
    seconds, is_over = float(period.amount), threading.Event()
    with _stacks_of(run.dir) as stacks:
        watchdog = Watchdog(run, seconds, stacks=stacks)

        def look_on() -> None:
            watchdog.look()
            while not is_over.wait(min(seconds / _CHECKS_PER_PERIOD, _LONGEST_PAUSE_SECONDS)):
                watchdog.look()

        thread = threading.Thread(target=look_on, name="epochal-watchdog", daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
            watchdog.disarm()


@contextmanager
def _stacks_of(folder: Path | None) -> Iterator[TextIO | None]:
    """The file for stacks, which must be open before it is needed; gone again if it was not."""
    file = None if folder is None else _open_stacks(folder / "logs")
    if file is None:
        yield None
        return
    with file:
        yield file
    path = Path(file.name)
    with suppress(OSError):
        if not path.stat().st_size:
            path.unlink()


def _open_stacks(folder: Path) -> TextIO | None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / STACKS_FILE_NAME).open("a", encoding="utf-8")
    except OSError as error:  # the run itself says so if it cannot write either
        _logger.warning("what threads do in a hang could not be recorded: %s", error)
        return None


def write_stacks(file: TextIO) -> None:
    """Write down what every thread is doing now."""
    file.write(f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S}\n")
    file.flush()
    faulthandler.dump_traceback(file, all_threads=True)
    file.write("\n")
    file.flush()
