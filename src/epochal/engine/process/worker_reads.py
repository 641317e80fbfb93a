"""What each loader worker is reading, and where it crashed, in memory and files that outlive it."""

from __future__ import annotations

import faulthandler
import os
import re
import shutil
import tempfile
import weakref
from multiprocessing import active_children
from multiprocessing.connection import wait
from multiprocessing.sharedctypes import RawArray
from pathlib import Path
from typing import final

from torch.utils.data import get_worker_info

from epochal.records.folder.crash import parse_crash

_UNSET = -1
_PID_LIST = re.compile(r"\(pid(?:\(s\))? ([\d, ]+)\)")
_END_SECONDS = 5.0


@final
class ReadLog:
    """The sample that each worker reads, for the message when one of them dies."""

    def __init__(self, workers: int) -> None:
        self._samples = RawArray("q", [_UNSET] * workers)
        self._items = RawArray("q", [_UNSET] * 2 * workers)  # of each: a pipe, and its item
        self._pids = RawArray("q", workers)
        self._folder = tempfile.mkdtemp(prefix="epochal-workers-")
        weakref.finalize(self, _remove, self._folder, os.getpid())

    def note(self, sample: object) -> None:
        """Store what this worker reads now; nothing happens outside of workers."""
        info = get_worker_info()
        if info is not None and isinstance(sample, int):
            if self._pids[info.id] != os.getpid():
                self._pids[info.id] = os.getpid()
                self._watch(info.id)
            self._samples[info.id] = sample

    def get_items(self) -> memoryview[int] | None:
        """Where this worker stores the pipe that reads and its item; None outside of workers."""
        info = get_worker_info()
        if info is None:
            return None
        return memoryview(self._items).cast("B").cast("q")[2 * info.id : 2 * info.id + 2]

    def _watch(self, worker: int) -> None:
        """Let a crash of this process, such as a segmentation fault, write its traceback."""
        try:
            file = (Path(self._folder) / str(worker)).open("wb")
        except OSError:  # such as a full disk: a crash has no traceback then
            return
        faulthandler.disable()  # torch has replaced its signal handlers since the process began
        faulthandler.enable(file, all_threads=False)  # it keeps the file open

    def find_last(self, error: BaseException) -> str:
        """What the worker that died with an error was reading; empty if it is unknown."""
        for worker in self._find_dead(error):
            if self._samples[worker] != _UNSET:
                pipe, item = self._items[2 * worker : 2 * worker + 2]
                known = "" if _UNSET in (pipe, item) else f", item {item} of pipe {pipe + 1}"
                return f"{self._samples[worker]}{known}"
        return ""

    def find_crash(self, error: BaseException) -> tuple[str, str]:
        """The fault of the worker that died, and the lines it was in; empty if unknown.

        A killed process, such as one that ran out of memory, leaves none.
        """
        for worker in self._find_dead(error):
            try:
                text = (Path(self._folder) / str(worker)).read_text(errors="replace")
            except OSError:
                continue
            if crash := parse_crash(text):
                return crash.fault, crash.lines
        return "", ""

    def _find_dead(self, error: BaseException) -> list[int]:
        found = _PID_LIST.search(str(error))
        if found:
            dead = {int(pid) for pid in found.group(1).split(",")}
            return [worker for worker, pid in enumerate(self._pids) if pid in dead]
        # A broken connection names no process, and may be noticed just before its end.
        try:
            own = [one for one in active_children() if one.pid in set(self._pids)]
            if own and len(own) == sum(map(bool, self._pids)):
                ready = wait([one.sentinel for one in own], timeout=_END_SECONDS)
                for one in own:
                    if one.sentinel in ready:
                        one.join(_END_SECONDS)  # its files are closed a moment before its end
            alive = {one.pid for one in active_children()}
        except RuntimeError as later:  # torch's signal handler raises it here, with the process
            if not _PID_LIST.search(str(later)):
                raise
            return self._find_dead(later)
        return [worker for worker, pid in enumerate(self._pids) if pid and pid not in alive]


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # a worker has a copy of the log
        shutil.rmtree(folder, ignore_errors=True)
