"""The run in progress; only one thread at a time can have one."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

import torch

from epochal.errors import TaskError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.engine.interfaces.run import ProbeKind, Run

_current: ContextVar[Run | None] = ContextVar("epochal_current_run", default=None)
_run_lock = threading.RLock()  # held by the running thread, once for each nested run


def current_run() -> Run:
    """The run that this code is part of.

    Raises:
        TaskError: No run is in progress here.
    """
    run = _current.get()
    if run is None:
        raise TaskError("current_run: no run is in progress here\n  call it from a task or a hook")
    return run


def probe(name: str, value: object, kind: ProbeKind | None = None) -> None:
    """Record an intermediate value in the steps that the hook ``Probe`` chooses; see ``Run.probe``.

    Models can call it anywhere: without a run it does nothing, and compiled code leaves it out.
    """
    if torch.compiler.is_compiling():
        return
    run = _current.get()
    if run is not None:
        run.probe(name, value, kind)


@contextmanager
def making_current(run: Run) -> Iterator[None]:
    """Let ``current_run`` return this run in a block; runs may be nested in one thread."""
    if not _run_lock.acquire(blocking=False):
        raise TaskError(
            "run: another thread has a run in progress, and both would use the same "
            "random generators\n"
            "  start one after the other, or each in its own process"
        )
    token = _current.set(run)
    try:
        yield
    finally:
        _current.reset(token)
        _run_lock.release()


def _forget_run() -> None:
    _current.set(None)


# A forked process, such as a loader's worker, has only a stale copy of the run.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_run)
