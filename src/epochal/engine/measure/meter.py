"""Weighted means of the values of steps; each reader has its own window.

Steps add ``(value, count)`` pairs to the run's ``Meter``, without reading from the device. A
reader opens a window once and reads it at any time::

    def run_start(self, run):
        self._window = run.meter.window()

    def step_end(self, run):
        step = run.step
        self._window.read_later(lambda means: print(step, means["loss"]))

``read_later`` does not wait: on a device it delivers the means since the last read one step later,
when they have arrived. ``read`` waits and returns them at once.

Windows are independent: the console may read every 50 steps and the record every 10. Each read
moves everything since the last read of any window in one transfer and adds it to all windows, so
the cost of a step does not depend on the number of readers, and a value that is not finite
affects only the windows that contain it.

Names have no prefix here. Readers record them as ``train/<name>``. The engine records the means
of an epoch as ``train/epoch/<name>`` and passes them to ``epoch_end`` as ``train/<name>``; it also
records the values of evaluations.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

import torch

from epochal.engine.measure.sums import DeviceSums, HostSums, PendingSums, Sums

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from torch import Tensor

    from epochal.engine.measure.sums import HostAdditions, Number, State, Totals

    Means = dict[str, float]
    Receive = Callable[[Means], object]

EMPTY_BATCH_LOSS = "loss of a batch without items"
"""Excluded from all means, but ``notice`` gets its values that are not finite."""


@final
class Window:
    """The means since the last read of this window; made by ``Meter.window``."""

    def __init__(self, meter: Meter, name: str = "") -> None:
        self.name = name
        """Its name in checkpoints; windows of the same name are distinguished by their order."""

        self._meter = meter
        self._sums: dict[str, float] = {}
        self._counts: dict[str, float] = {}

    def read(self) -> Means:
        """The means since the last read; empties the window."""
        self._meter.flush()
        return self.empty()

    def peek(self) -> Means:
        """The means since the last read, without emptying the window."""
        self._meter.flush()
        return self.means()

    def read_later(self, receive: Receive) -> None:
        """Empty the window, and call ``receive`` with its means when they have arrived.

        That is at once on the CPU, and after the next step on a device. A ``read`` before that
        waits, and calls ``receive`` first.
        """
        self._meter.request(self.empty, receive)

    def peek_later(self, receive: Receive) -> None:
        """Like ``read_later``, without emptying the window."""
        self._meter.request(self.means, receive)

    def close(self) -> None:
        """Stop collecting."""
        self._meter.forget(self)

    def means(self) -> Means:
        """The means of the values that have arrived."""
        return {name: self._sums[name] / count for name, count in self._counts.items() if count > 0}

    def empty(self) -> Means:
        """The means of the values that have arrived; empties the window."""
        means = self.means()
        self._sums.clear()
        self._counts.clear()
        return means

    def count(self, name: str) -> float:
        """The sum of the counts of a value that have arrived."""
        return self._counts.get(name, 0.0)

    def add(self, name: str, total: float, count: float) -> None:
        """Add a sum of values times counts, and the sum of the counts."""
        self._sums[name] = self._sums.get(name, 0.0) + total
        self._counts[name] = self._counts.get(name, 0.0) + count

    def state_dict(self) -> State:
        """The state for a checkpoint."""
        return {"name": self.name, "sums": dict(self._sums), "counts": dict(self._counts)}

    def load_state_dict(self, state: State) -> None:
        """Continue from a checkpoint."""
        self._sums, self._counts = dict(state["sums"]), dict(state["counts"])


@final
@dataclass(slots=True)
class _Request:
    """Pending sums, and the readers that wait for them."""

    sums: PendingSums
    readers: list[tuple[Callable[[], Means], Receive]] = field(default_factory=list)


@final
class Meter:
    """Sums of values times counts, and the windows through which they are read.

    Args:
        device: The device of the values.
        notice: Called with name and mean of values that are not finite.
        wake: Called when ``deliver`` should be called after the next step.
        is_async: Whether sums arrive later; by default on any device but the CPU.
    """

    def __init__(
        self,
        device: torch.device | str = "cpu",
        *,
        notice: Callable[[str, float], object] | None = None,
        wake: Callable[[], object] | None = None,
        is_async: bool | None = None,
    ) -> None:
        device = torch.device(device)
        self.is_async = device.type != "cpu" if is_async is None else is_async
        self._sums: Sums = DeviceSums(device) if self.is_async else HostSums()
        self._notice = notice
        self._wake = wake
        self._windows: list[Window] = []
        self._requests: list[_Request] = []
        self.add = self._sums.add
        """Adds the values of one batch, each with its count."""

    def window(self, name: str = "") -> Window:
        """A new window that starts now; checkpoints identify it by its name."""
        self.flush()
        window = Window(self, name)
        self._windows.append(window)
        return window

    def forget(self, window: Window | None = None) -> None:
        """Remove a window, or all, which also breaks the reference cycle with the meter."""
        self._windows = [one for one in self._windows if window is not None and one is not window]

    def add_one(self, name: str, value: Number, count: Number) -> None:
        """Add one value; counts that are not positive are ignored."""
        self.add({name: (value, count)})

    def request(self, read: Callable[[], Means], receive: Receive) -> None:
        """Call ``receive`` with the result of ``read`` when all added values have arrived."""
        if not self.is_async:
            self.flush()
            receive(read())
            return
        if self._sums.has_new or not self._requests:
            self._requests.append(_Request(self._sums.take()))
        self._requests[-1].readers.append((read, receive))
        if self._wake is not None:
            self._wake()

    def deliver(self) -> bool:
        """Deliver all requested means; returns whether user code was called.

        All readers are called, even if one raises; the first error is raised at the end.
        """
        has_run_user_code = False
        errors: list[Exception] = []
        while self._requests:
            request = self._requests.pop(0)
            self._add_to_windows(request.sums.read())
            for read, receive in request.readers:
                module = str(getattr(receive, "__module__", ""))
                has_run_user_code |= not module.startswith("epochal.")
                means = read()
                try:
                    receive(means)
                except Exception as error:
                    error.add_note(f"raised in {_name(receive)}, which received requested means")
                    errors.append(error)
        for another in errors[1:]:
            errors[0].add_note(f"after that: {another!r}")
        if errors:
            raise errors[0]
        return has_run_user_code

    def flush(self) -> None:
        """Add all new values to every window, in one transfer; waits for the device."""
        self.deliver()
        if self._sums.has_new:
            self._add_to_windows(self._sums.take().read())

    def capture_additions(self) -> AbstractContextManager[HostAdditions]:
        """Collect the host additions of a block instead of adding them; for a captured step."""
        return self._sums.capture_additions()

    def replay_additions(self, additions: HostAdditions) -> None:
        """Add collected host additions; the replayed graph adds those of the device."""
        self._sums.replay_additions(additions)

    def save_sums(self) -> State:
        """A copy of the values that were not read yet, to undo a step."""
        return copy.deepcopy(self._sums.state_dict())

    def restore_sums(self, state: State) -> None:
        """Restore ``save_sums``; nothing may have been read since."""
        self._sums.load_state_dict(state)

    def state_tensors(self) -> dict[str, Tensor]:
        """The tensors that a step adds to; they are never replaced."""
        return self._sums.state_tensors()

    def state_dict(self) -> State:
        """The state for a checkpoint; requires that all requests are delivered."""
        assert not self._requests
        windows = [window.state_dict() for window in self._windows]
        return {"sums": self._sums.state_dict(), "windows": windows}

    def load_state_dict(self, state: State) -> None:
        """Continue from a checkpoint; windows that it does not have become empty."""
        self._requests.clear()
        self._sums.load_state_dict(state["sums"])
        known: dict[str, list[State]] = {}
        for one in state["windows"]:
            known.setdefault(one["name"], []).append(one)
        for window in self._windows:
            saved = known.get(window.name)
            if saved:
                window.load_state_dict(saved.pop(0))
            else:
                window.empty()

    def _add_to_windows(self, totals: Totals) -> None:
        for name, (total, count) in totals.items():
            for window in self._windows if name != EMPTY_BATCH_LOSS else ():
                window.add(name, total, count)
            if self._notice is not None and count > 0 and not math.isfinite(total):
                self._notice(name, total / count)


def _name(function: Receive) -> str:
    """The full name of a function or callable object."""
    owner = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', type(function).__module__)}.{owner}"
