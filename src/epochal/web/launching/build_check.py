"""Builds experiments in other processes for the check of the page, one at a time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from epochal.errors import Problem

WAIT_SECONDS = 7.0
"""How long one request waits for a result; an answer may take ten seconds."""

_MAX_KEPT = 20


@final
@dataclass(frozen=True, kw_only=True)
class BuildFacts:
    """What only a built model shows."""

    parameters: int | None = None
    memory_bytes: int | None = None
    """Of weights, gradients and the state of the optimizer."""

    note: str = ""
    """Why something is unknown, or what the numbers leave out."""

    problems: tuple[Problem, ...] = ()


@final
class BuildChecks:
    """Results of builds by what was asked; the same question is built once."""

    def __init__(self, *, wait_seconds: float = WAIT_SECONDS) -> None:
        self._wait_seconds = wait_seconds
        self._builder = ThreadPoolExecutor(1, "epochal-build")
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Future[BuildFacts]] = OrderedDict()

    def ask(self, question: str, build: Callable[[], BuildFacts]) -> BuildFacts | None:
        """The result; None while it is being built, so that the caller asks again."""
        with self._lock:
            found = self._known.get(question)
            if found is None:
                running = [one for one in self._known.values() if not one.done()]
                if len(running) >= _MAX_KEPT:
                    return BuildFacts(note="too many checks at once; try again in a minute")
                found = self._known[question] = self._builder.submit(build)
                while len(self._known) > _MAX_KEPT:
                    self._known.popitem(last=False)[1].cancel()
        try:
            return found.result(self._wait_seconds)
        except FutureTimeoutError:
            return None

    def forget(self, question: str) -> None:
        """Build the next time again: the files may have changed since."""
        with self._lock:
            found = self._known.get(question)
            if found is not None and found.done():
                del self._known[question]
