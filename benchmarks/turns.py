"""Two trainings that alternate their steps.

The speed of a machine changes within seconds by more than the measured differences. Where a step
takes milliseconds, the two sides of a pair therefore alternate: when a forward pass of one side
begins, the other side continues to its next one. Changes of speed then affect both sides alike.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Side:
    """One of two trainings; its model calls it at every forward pass.

    Args:
        marks: The passes between which time counts.
    """

    def __init__(self, marks: tuple[int, ...]) -> None:
        self.first, self.last = marks
        self.count = 0
        self.wall = self.cpu = self.aside = 0.0
        """Seconds of its turns; ``aside`` is CPU time of other threads meanwhile."""

        self._turn = threading.Semaphore(0)
        self._other: Side | None = None
        self._begun = (0.0, 0.0, 0.0)

    def tick(self) -> None:
        """Record that a forward pass begins, and let the other side continue to its next one."""
        self._end_turn()
        self.count += 1
        if self._other is not None:
            self._other._turn.release()
            self._turn.acquire()
        self._begin_turn()

    def train(self, work: Callable[[], None]) -> None:
        """Do the whole work in turns; then the other side continues alone."""
        self._begin_turn()
        try:
            work()
        finally:
            if self._other is not None:
                self._other._other = None
                self._other._turn.release()

    def wait(self) -> None:
        """Wait for the first turn."""
        self._turn.acquire()

    def face(self, other: Side) -> None:
        """Alternate with another side from now on."""
        self._other, other._other = other, self

    def _begin_turn(self) -> None:
        self._begun = time.perf_counter(), time.thread_time(), time.process_time()

    def _end_turn(self) -> None:
        if self.first < self.count <= self.last:
            wall, own, all_threads = self._begun
            cpu = time.thread_time() - own
            self.aside += time.process_time() - all_threads - cpu
            self.cpu += cpu
            self.wall += time.perf_counter() - wall


def train_in_turns(
    theirs: tuple[Side, Callable[[], None]], ours: tuple[Side, Callable[[], None]]
) -> None:
    """Train both sides; the peer in this thread, because some need the main thread.

    CPU time of other threads counts for the peer; the hand-written loop has none.
    """
    (their_side, their_work), (our_side, our_work) = theirs, ours
    their_side.face(our_side)
    errors: list[BaseException] = []

    def train() -> None:
        our_side.wait()
        try:
            our_side.train(our_work)
        except BaseException as error:  # raised in the main thread
            errors.append(error)

    thread = threading.Thread(target=train)
    thread.start()
    try:
        their_side.train(their_work)
    finally:
        thread.join()
    if errors:
        raise errors[0]
    their_side.cpu += their_side.aside + our_side.aside
