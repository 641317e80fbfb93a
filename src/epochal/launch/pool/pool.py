"""The pool: starts jobs on free devices, watches them, and leaves no process behind."""

from __future__ import annotations

import math
import os
import select
import signal
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, final

from epochal import durable
from epochal.errors import CANNOT_START_EXIT_CODE
from epochal.launch.pool.backlog import JobEnd
from epochal.launch.pool.executor import JobStart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from epochal.launch.pool.backlog import Backlog, WaitingJob
    from epochal.launch.pool.devices import DeviceLease, Leases
    from epochal.launch.pool.executor import Executor, JobHandle

TICK_SECONDS = 1.0
"""How often a pool looks for free devices and new jobs; the end of a job wakes it at once."""

_MAX_ENDED = 1000
_STOP_SIGNALS = ("SIGTERM", "SIGHUP")
_DEBOUNCE_SECONDS = 0.2
"""Stop signals within this time count as one request."""


Mode = Literal["running", "draining", "stopping", "killing"]
"""``draining``: start no more jobs; ``stopping``: also ask the running ones to save and end."""

_MODES: tuple[Mode, ...] = ("running", "draining", "stopping", "killing")


@final
@dataclass(eq=False)
class PoolEntry:
    """A job that a pool has started."""

    waiting: WaitingJob
    lease: DeviceLease
    handle: JobHandle | None
    started: float
    """By the clock of the pool."""

    ended: float | None = None
    end: JobEnd | None = None
    was_stopped: bool = False

    @property
    def device(self) -> str:
        """The name of its device."""
        return self.lease.device.name

    def find_run_dir(self) -> Path | None:
        """The folder of its run, as soon as it has one."""
        return read_run_file(self.waiting.run_file)


def read_run_file(path: Path) -> Path | None:
    """The folder of the run that a process reported in a file; None if it has none."""
    try:
        text = path.read_text("utf-8").strip()
    except OSError:
        return None
    return Path(text) if text and Path(text).is_dir() else None


@final
class Pool:
    """Runs the jobs of a backlog at once, each on a leased device.

    The thread that calls ``run`` must live as long as the pool: Linux ends its jobs with it. In
    the main thread, the first Ctrl-C drains the pool, the second stops it, the third kills it;
    SIGTERM and a closed terminal stop it, a second time they kill it.

    Args:
        backlog: Where jobs come from.
        executor: What starts them.
        leases: The devices.
        show: Called with the pool after each change and about once a second.
        waits_for_more: Whether to wait for new jobs when the backlog is done.
        clock: Gives seconds.
        tick_seconds: How long to wait at most until it looks again.
    """

    def __init__(
        self,
        backlog: Backlog,
        executor: Executor,
        leases: Leases,
        *,
        show: Callable[[Pool], None] = lambda pool: None,
        waits_for_more: bool = False,
        clock: Callable[[], float] = time.monotonic,
        tick_seconds: float = TICK_SECONDS,
    ) -> None:
        self.backlog, self.leases = backlog, leases
        self.running: list[PoolEntry] = []
        self.ended: list[PoolEntry] = []
        """The newest of those that have ended."""

        self.mode: Mode = "running"
        self.was_interrupted = False
        """Whether Ctrl-C drained or stopped it."""

        self._executor = executor
        self._show = show
        self._waits_for_more = waits_for_more
        self.clock = clock
        self._tick_seconds = tick_seconds
        self._last_stop = -math.inf
        self._pipe = os.pipe()
        os.set_blocking(self._pipe[0], False)
        os.set_blocking(self._pipe[1], False)

    def advance(self, mode: Mode) -> None:
        """Drain, stop or kill; from any thread. An earlier mode than the present one is ignored."""
        if _MODES.index(mode) > _MODES.index(self.mode):
            self.mode = mode
        self._wake()

    def run(self) -> None:
        """Run jobs until the backlog is done or the pool was stopped; no process is left then."""
        try:
            with self._handling_signals():
                while self._tick():
                    self._wait()
        finally:
            self._end_all()
            self._executor.close()
            for end in self._pipe:
                os.close(end)
            self._pipe = (-1, -1)
        self._show(self)

    def _tick(self) -> bool:
        """Do what is due now; returns whether anything is left."""
        for entry in list(self.running):
            self._poll(entry)
        if self.backlog.wants_drain():
            self.advance("draining")
        self._pass_on_requests()
        if self.mode == "running":
            self._start_jobs()
        self.leases.beat()
        self._show(self)
        if self.running:
            return True
        if self.mode != "running":
            return False
        return self._waits_for_more or not self.backlog.is_done()

    def _poll(self, entry: PoolEntry) -> None:
        try:
            code = CANNOT_START_EXIT_CODE if entry.handle is None else entry.handle.poll()
        except OSError as error:  # only now its process could have been started
            _note(entry.waiting, str(error))
            code = CANNOT_START_EXIT_CODE
        if code is None:
            return
        end = JobEnd(code=code, run_dir=entry.find_run_dir(), was_stopped=entry.was_stopped)
        entry.end, entry.ended = end, self.clock()
        self.running.remove(entry)
        self.ended = [*self.ended, entry][-_MAX_ENDED:]
        self.leases.release(entry.lease)
        try:
            self.backlog.end(entry.waiting, end)
        finally:
            if entry.waiting.lock is not None:
                entry.waiting.lock.release()

    def _pass_on_requests(self) -> None:
        """Ask jobs to stop, once each; kill those that must end now."""
        unwanted = self.backlog.find_unwanted()
        for entry in self.running:
            is_unwanted = self.mode == "stopping" or entry.waiting.key in unwanted
            if entry.handle is None:
                continue
            if self.mode == "killing":
                entry.was_stopped = True
                entry.handle.kill()
            elif is_unwanted and not entry.was_stopped:
                entry.was_stopped = True
                entry.handle.stop()

    def _start_jobs(self) -> None:
        while self.mode == "running" and (request := self.backlog.peek()) is not None:
            lease = self.leases.acquire(request)
            if lease is None and not self.leases.find_misfit(request):
                return
            waiting = self.backlog.take(request)
            if waiting is None:
                if lease is not None:
                    self.leases.release(lease)
                return
            if lease is None:
                self._refuse(waiting, self.leases.find_misfit(request))
            else:
                self._start(waiting, lease)

    def _refuse(self, waiting: WaitingJob, reason: str) -> None:
        """End a job that can never start here."""
        self.backlog.begin(waiting, "", {})
        _note(waiting, reason)
        try:
            self.backlog.end(waiting, JobEnd(code=CANNOT_START_EXIT_CODE))
        finally:
            if waiting.lock is not None:
                waiting.lock.release()

    def _start(self, waiting: WaitingJob, lease: DeviceLease) -> None:
        environment = {**lease.device.environment, **waiting.environment}
        start = plan_start(waiting, lease)
        entry = PoolEntry(waiting, lease, None, self.clock())
        self.running.append(entry)
        self.backlog.begin(waiting, lease.device.name, environment)
        try:
            entry.handle = self._executor.submit(start)
        except Exception as error:  # the next poll reports that it could not be started
            _note(waiting, str(error))

    def _wait(self) -> None:
        """Wait for a signal, the end of a child, or the next tick."""
        has_failed = any(entry.handle is None for entry in self.running)
        select.select([self._pipe[0]], [], [], 0.0 if has_failed else self._tick_seconds)
        with suppress(BlockingIOError):
            while os.read(self._pipe[0], 4096):
                pass

    def _wake(self) -> None:
        if self._pipe[1] >= 0:
            with suppress(BlockingIOError):  # it is awake already
                os.write(self._pipe[1], b"!")

    def _end_all(self) -> None:
        """Kill what is left after an error; nothing is left otherwise."""
        for entry in self.running:
            if entry.handle is not None:
                entry.handle.kill()
        while self.running:
            for entry in list(self.running):
                entry.was_stopped = True
                self._poll(entry)
            time.sleep(0.01 if self.running else 0.0)

    def _handle_interrupt(self, number: int, frame: FrameType | None) -> None:
        self.was_interrupted = True
        self.advance(_MODES[min(_MODES.index(self.mode) + 1, len(_MODES) - 1)])

    def _handle_stop(self, number: int, frame: FrameType | None) -> None:
        # Linux sends SIGTERM once for each thread of a parent that was killed.
        before, self._last_stop = self._last_stop, self.clock()
        if self._last_stop - before >= _DEBOUNCE_SECONDS:
            self.advance("killing" if self.mode == "stopping" else "stopping")

    @contextmanager
    def _handling_signals(self) -> Iterator[None]:
        """Handle signals in a block; does nothing outside the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handlers: dict[int, Callable[[int, FrameType | None], None]] = {
            signal.SIGINT: self._handle_interrupt
        }
        for name in _STOP_SIGNALS:
            if hasattr(signal, name):
                handlers[getattr(signal, name)] = self._handle_stop
        if hasattr(signal, "SIGCHLD"):
            handlers[signal.SIGCHLD] = lambda number, frame: self._wake()
        # What a shell or nohup ignores stays ignored.
        kept = {number for number in handlers if signal.getsignal(number) == signal.SIG_IGN}
        before = {
            number: signal.signal(number, one)
            for number, one in handlers.items()
            if number not in kept
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _note(waiting: WaitingJob, reason: str) -> None:
    """Say in the output of a job why it could not be started."""
    with suppress(OSError), durable.Appender(waiting.log) as log:
        log.append(f"cannot be started: {reason}\n".encode("utf-8", "replace"))


def plan_start(waiting: WaitingJob, lease: DeviceLease) -> JobStart:
    """The start of a job on a leased device."""
    locks = (*lease.locks, waiting.lock)
    environment = {**lease.device.environment, **waiting.environment}
    return JobStart(
        job=waiting.job,
        file=waiting.file,
        device=replace(lease.device, environment=environment),
        log=waiting.log,
        run_file=waiting.run_file,
        resume=waiting.resume,
        parent=waiting.parent,
        keep_open=tuple(lock.descriptor for lock in locks if lock is not None),
    )
