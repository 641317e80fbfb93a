"""Two trainings that take their steps in turn, one at a time.

Machines grow faster and slower within seconds, by more than what is to be measured. Where a step
takes milliseconds, the two sides of a pair are therefore trained at the same time: after each
forward pass of one begins, the other goes on to its next one. Whatever slows the machine down then
slows both down alike.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Side:
    """One of two trainings; its model tells it of every forward pass.

    Args:
        marks: The passes between which time counts.
    """

    def __init__(self, marks: tuple[int, ...]) -> None:
        self.first, self.last = marks
        self.count = 0
        self.wall = self.cpu = self.aside = 0.0
        """Seconds of its turns; ``aside`` is what other threads computed in the meantime."""

        self._turn = threading.Semaphore(0)
        self._other: Side | None = None
        self._begun = (0.0, 0.0, 0.0)

    def tick(self) -> None:
        """Note that a forward pass begins, and let the other side go on to its next one."""
        self._end_turn()
        self.count += 1
        if self._other is not None:
            self._other._turn.release()
            self._turn.acquire()
        self._begin_turn()

    def train(self, work: Callable[[], None]) -> None:
        """Do all of the work in turns; then the other side goes on alone."""
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
        """Take turns with another side from now on."""
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
    """Train both sides, theirs in this thread, as some need the main one.

    What threads of theirs compute at any time is theirs; the hand-written loop has none.
    """
    (their_side, their_work), (our_side, our_work) = theirs, ours
    their_side.face(our_side)
    errors: list[BaseException] = []

    def train() -> None:
        our_side.wait()
        try:
            our_side.train(our_work)
        except BaseException as error:  # told by the main thread
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
