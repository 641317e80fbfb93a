"""``epochal`` in processes of their own, for tests that send signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Process:
    """``epochal`` with words, whose output can be waited for."""

    def __init__(self, *words: str) -> None:
        environment = os.environ | {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
        self.child = subprocess.Popen(
            [sys.executable, "-m", "epochal", *words, "--device", "cpu"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def wait_for(self, text: str) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            if text in line:
                return
        raise AssertionError(f"{text!r} never came: {self.end()}")

    def interrupt(self, number: int = signal.SIGINT) -> None:
        self.child.send_signal(number)

    def end(self) -> tuple[int, str]:
        """The exit code and what was written to standard error."""
        _, errors = self.child.communicate(timeout=90)
        return self.child.returncode, errors


Start = Callable[..., Process]


@contextmanager
def starting() -> Iterator[Start]:
    """Starts processes that a failing test does not leave behind."""
    started: list[Process] = []

    def begin(*words: str) -> Process:
        started.append(Process(*words))
        return started[-1]

    yield begin
    for process in started:
        process.child.kill()
        process.child.communicate()
