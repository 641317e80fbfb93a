"""``epochal`` in its own process, for tests that send signals."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from forked import Child


class Process:
    """``epochal`` with words; a test can wait for its output."""

    def __init__(self, *words: str) -> None:
        self.child = Child("-m", "epochal", *words, "--device", "cpu")

    def wait_for(self, text: str) -> None:
        for line in self.child.stdout:
            if text in line:
                return
        raise AssertionError(f"{text!r} never came: {self.end()}")

    def interrupt(self, number: int = signal.SIGINT) -> None:
        self.child.signal(number)

    def end(self) -> tuple[int, str]:
        """The exit code and what was written to standard error."""
        done = self.child.end()
        return done.returncode, done.stderr


Start = Callable[..., Process]


@contextmanager
def starting() -> Iterator[Start]:
    """Starts processes, and kills them when a test fails."""
    started: list[Process] = []

    def begin(*words: str) -> Process:
        started.append(Process(*words))
        return started[-1]

    yield begin
    for process in started:
        if process.child.code is None:
            process.interrupt(signal.SIGKILL)
            process.end()
