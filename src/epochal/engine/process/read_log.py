"""What each loader worker is reading, in memory that outlives it."""

from __future__ import annotations

import os
import re
from multiprocessing.sharedctypes import RawArray
from typing import final

from torch.utils.data import get_worker_info

_NOTHING = -1
_PIDS = re.compile(r"\(pid(?:\(s\))? ([\d, ]+)\)")


@final
class ReadLog:
    """The sample that each worker reads, for the message when one of them dies."""

    def __init__(self, workers: int) -> None:
        self._samples = RawArray("q", [_NOTHING] * workers)
        self._pids = RawArray("q", workers)

    def note(self, sample: object) -> None:
        """Store what this worker reads now; nothing happens outside of workers."""
        info = get_worker_info()
        if info is not None and isinstance(sample, int):
            self._pids[info.id] = os.getpid()
            self._samples[info.id] = sample

    def find_last(self, error: BaseException) -> int | None:
        """What the worker that an error of torch names was reading; None if it is unknown."""
        found = _PIDS.search(str(error))
        dead = {int(pid) for pid in found.group(1).split(",")} if found else set()
        for pid, sample in zip(self._pids, self._samples, strict=True):
            if pid in dead and sample != _NOTHING:
                return int(sample)
        return None
