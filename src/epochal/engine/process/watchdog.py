"""Detects a run that hangs, and writes the stacks of all threads."""

from __future__ import annotations

import faulthandler
import logging
import threading
import time
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, final

from epochal.errors import LeaseLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from epochal.engine.interfaces.run import Run

STACKS_FILE_NAME = "stacks.txt"
"""The stacks of all threads in a hang, in the folder ``logs`` of a run."""

_CHECKS_PER_PERIOD = 8
_MAX_CHECK_SECONDS = 30.0

logger = logging.getLogger(__name__)


@final
class Watchdog:
    """Reports when a run makes no progress for ``seconds``.

    ``position`` returns what changes with every step and every evaluated batch. ``on_stall`` gets a
    message and the step, and must return at once. Without ``stacks`` no stacks are written. If a
    supervisor restarts the run, a process that is blocked as a whole ends with exit code 1.
    ``describe_others`` returns which process of the run holds up the others, as text.
    """

    def __init__(
        self,
        run: Run,
        seconds: float,
        *,
        position: Callable[[], object],
        on_stall: Callable[[str, int], None],
        stacks: TextIO | None = None,
        is_supervised: bool = False,
        describe_others: Callable[[], str] = str,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = run
        self._seconds = seconds
        self._stacks = stacks
        self._is_supervised = is_supervised
        self._now = now
        self._position, self._on_stall = position, on_stall
        self._describe_others = describe_others
        self._seen = position()
        self._since = self._checked = now()
        self._has_warned = False

    def check_progress(self) -> None:
        """Report once, in the log and in the record, if there was no progress for too long."""
        position, now = self._position(), self._now()
        blocked, self._checked = now - self._checked, now
        self._arm()
        if blocked >= self._seconds:
            self._report_hang(blocked, is_blocked=True)
            self._has_warned = True
        elif position == self._seen and now - self._since >= self._seconds and not self._has_warned:
            self._has_warned = True
            self._report_hang(now - self._since)
        if position != self._seen:
            self._seen, self._since, self._has_warned = position, now, False

    def _arm(self) -> None:
        """Have faulthandler write the stacks unless this is called again in time.

        C code that never releases the GIL stops all Python threads, this one too; faulthandler
        does not need the GIL. The process has only one such timer.
        """
        if self._stacks is not None:
            faulthandler.dump_traceback_later(
                self._seconds, file=self._stacks, exit=self._is_supervised
            )

    def disarm(self) -> None:
        """Cancel the timer of faulthandler."""
        if self._stacks is not None:
            faulthandler.cancel_dump_traceback_later()

    def _report_hang(self, seconds: float, *, is_blocked: bool = False) -> None:
        run, where = self._run, None if self._stacks is None else self._stacks.name
        self.disarm()  # the other processes may take longer to answer than that
        others = self._describe_others()
        self._arm()
        try:
            if self._stacks is not None and not is_blocked:  # else faulthandler wrote them
                write_stacks(self._stacks)
            run.writer.event(
                "hang",
                step=run.step,
                split=run.split,
                seconds=round(seconds),
                stacks=str(where),
                **({"ranks": others} if others else {}),
            )
        except Exception as error:  # the watchdog must not affect the run
            logger.warning("the hang below could not be recorded: %s", error)
        logger.warning(
            "no progress for %.0f s in %s at step %d%s%s: %s; engine.hang_after sets another time, "
            "0 disables the check",
            seconds,
            run.split,
            run.step,
            ", in a call that blocks all other threads" if is_blocked else "",
            f", {others}" if others else "",
            f"the stacks of all threads are in {where}" if where else "the run may hang",
        )
        message = f"no progress for {seconds:.0f} s in {run.split} at step {run.step}"
        self._on_stall(f"{message}, {others}" if others else message, run.step)


@contextmanager
def watching_for_hangs(
    run: Run,
    *,
    position: Callable[[], object],
    on_stall: Callable[[str, int], None],
    is_supervised: bool = False,
    describe_others: Callable[[], str] = str,
) -> Iterator[None]:
    """Check the progress of a run during a block, from a separate thread."""
    period = run.options.engine.hang_after
    if period.is_never or run.is_debug:  # a debugger may wait for hours
        yield
        return
    seconds, is_over = float(period.amount), threading.Event()
    with _stacks_of(run) as stacks:
        watchdog = Watchdog(
            run,
            seconds,
            position=position,
            on_stall=on_stall,
            stacks=stacks,
            is_supervised=is_supervised,
            describe_others=describe_others,
        )

        def keep_checking() -> None:
            watchdog.check_progress()
            while not is_over.wait(min(seconds / _CHECKS_PER_PERIOD, _MAX_CHECK_SECONDS)):
                watchdog.check_progress()

        thread = threading.Thread(target=keep_checking, name="epochal-watchdog", daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
            watchdog.disarm()


@contextmanager
def _stacks_of(run: Run) -> Iterator[TextIO | None]:
    """The file for stacks, opened before it is needed; removed if it stays empty."""
    file = None if run.log_dir is None else open_stacks(run.log_dir, run.rank)
    if file is None:
        yield None
        return
    with file:
        yield file
    remove_if_empty(run, Path(file.name))


def remove_if_empty(run: Run, path: Path) -> None:
    """Remove a file that was opened before it was needed, if nothing was written to it."""
    with suppress(OSError, LeaseLostError):
        run.writer.require_lease()
        if not path.stat().st_size:
            path.unlink()


def find_rank_path(folder: Path, name: str, rank: int) -> Path:
    """The path of a file of which each process of a run has its own."""
    path = folder / name
    return path.with_stem(f"{path.stem}.rank{rank}") if rank else path


def open_stacks(folder: Path, rank: int = 0) -> TextIO | None:
    """The file for stacks in a folder; None, with a warning, if it cannot be written."""
    path = find_rank_path(folder, STACKS_FILE_NAME, rank)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return path.open("a", encoding="utf-8")
    except OSError as error:  # the run reports if it cannot write either
        logger.warning("the stacks of threads in a hang cannot be recorded: %s", error)
        return None


def write_stacks(file: TextIO) -> None:
    """Write the current stacks of all threads."""
    file.write(f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S}\n")
    file.flush()
    faulthandler.dump_traceback(file, all_threads=True)
    file.write("\n")
    file.flush()
