"""Weighted means of what steps produce, each reader with a window of its own.

Steps add ``(value, count)`` pairs to the run's ``Meter``; nothing is read from the device
then. Whoever wants means asks for a window once and reads it whenever it likes::

    def run_start(self, run):
        self._window = run.meter.window()

    def step_end(self, run):
        step = run.step
        self._window.read_later(lambda means: print(step, means["loss"]))

``read_later`` waits for nothing: on a device the means since the last read come one step later,
when they have arrived. ``read`` gives them at once, and waits.

Windows do not disturb each other: the console may read every 50 steps and the record every
10. Reading moves everything since anybody's last read in one packed transfer and adds it to
all windows, so the cost of a step does not grow with the number of readers, and a value that
is not finite spoils only the windows that contain it.

Names are bare here. A reader that records them writes ``train/<name>``. Means of a whole
epoch are recorded by the engine as ``train/epoch/<name>`` and handed to ``epoch_end`` as
``train/<name>``; values of evaluations are recorded by the engine too.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

import torch

from epochal.engine.measure.device_sums import DeviceSums
from epochal.engine.measure.sums import HostSums, PendingSums, Sums

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from torch import Tensor

    from epochal.engine.measure.sums import HostAdditions, Number, State, Totals

    Means = dict[str, float]
    Take = Callable[[Means], object]

EMPTY_BATCH_LOSS = "loss of a batch without items"
"""Its values enter no mean, but ``notice`` is told of those that are not finite."""


@final
class Window:
    """Means since this reader's last read; made by ``Meter.window``."""

    def __init__(self, meter: Meter, name: str = "") -> None:
        self.name = name
        """What a checkpoint calls it; windows of one name are told apart by their order."""

        self._meter = meter
        self._sums: dict[str, float] = {}
        self._counts: dict[str, float] = {}

    def read(self) -> Means:
        """The means since the last read, and begin anew."""
        self._meter.fold()
        return self.empty()

    def peek(self) -> Means:
        """The means since the last read, which stay in the window."""
        self._meter.fold()
        return self.means()

    def read_later(self, take: Take) -> None:
        """Begin anew, and have the means until now given to ``take`` when they have arrived.

        That is at once on the CPU, and after the next step elsewhere. Whatever reads before
        then has to wait, and ``take`` gets its means first.
        """
        self._meter.request(self.empty, take)

    def peek_later(self, take: Take) -> None:
        """The same, but what is in the window stays there."""
        self._meter.request(self.means, take)

    def close(self) -> None:
        """Stop collecting."""
        self._meter.forget(self)

    def means(self) -> Means:
        """The means of what has arrived."""
        return {name: self._sums[name] / count for name, count in self._counts.items() if count > 0}

    def empty(self) -> Means:
        """The means of what has arrived, which the window then has no more."""
        means = self.means()
        self._sums.clear()
        self._counts.clear()
        return means

    def take(self, name: str, total: float, count: float) -> None:
        """Add a sum of values times counts, and the sum of the counts."""
        self._sums[name] = self._sums.get(name, 0.0) + total
        self._counts[name] = self._counts.get(name, 0.0) + count

    def state_dict(self) -> State:
        """What a checkpoint keeps."""
        return {"name": self.name, "sums": dict(self._sums), "counts": dict(self._counts)}

    def load_state_dict(self, state: State) -> None:
        """Go on from a checkpoint."""
        self._sums, self._counts = dict(state["sums"]), dict(state["counts"])


@final
@dataclass(slots=True)
class _Request:
    """Sums on their way, and who waits for them."""

    taken: PendingSums
    takers: list[tuple[Callable[[], Means], Take]] = field(default_factory=list)


@final
class Meter:
    """Sums of values times counts, and the windows through which they are read.

    Args:
        device: Where values come from.
        notice: Told the name and the mean of what was read and is not finite.
        wake: Told that ``deliver`` should be called after the next step.
        is_async: Whether reading takes a while; by default it does on any device but the CPU.
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
        """Counts in one batch's values, each with its count."""

    def window(self, name: str = "") -> Window:
        """A new reader, whose first window begins now; a checkpoint knows it by its name."""
        self.fold()
        window = Window(self, name)
        self._windows.append(window)
        return window

    def forget(self, window: Window | None = None) -> None:
        """Take no more notice of a reader, or of any: they know the meter, which is free then."""
        self._windows = [one for one in self._windows if window is not None and one is not window]

    def add_one(self, name: str, value: Number, count: Number) -> None:
        """Count in one value; counts that are not positive are left out."""
        self.add({name: (value, count)})

    def request(self, read: Callable[[], Means], take: Take) -> None:
        """Call ``take`` with what ``read`` gives, as soon as all that was added has arrived."""
        if not self.is_async:
            self.fold()
            take(read())
            return
        if self._sums.has_new or not self._requests:
            self._requests.append(_Request(self._sums.take()))
        self._requests[-1].takers.append((read, take))
        if self._wake is not None:
            self._wake()

    def deliver(self) -> bool:
        """Give those who asked what they wait for; whether code of others was called.

        Everybody gets theirs, also if one of them raises, which is passed on then.
        """
        has_run_user_code = False
        errors: list[Exception] = []
        while self._requests:
            request = self._requests.pop(0)
            self._spread(request.taken.read())
            for read, take in request.takers:
                has_run_user_code |= not str(getattr(take, "__module__", "")).startswith("epochal.")
                means = read()
                try:
                    take(means)
                except Exception as error:
                    error.add_note(f"raised in {_name(take)}, given means that it asked for")
                    errors.append(error)
        for another in errors[1:]:
            errors[0].add_note(f"after that: {another!r}")
        if errors:
            raise errors[0]
        return has_run_user_code

    def fold(self) -> None:
        """Move what was added since the last time into every window, in one transfer."""
        self.deliver()
        if self._sums.has_new:
            self._spread(self._sums.take().read())

    def capture_additions(self) -> AbstractContextManager[HostAdditions]:
        """Note what a block adds on the host, instead of adding it; for a step not taken."""
        return self._sums.capture_additions()

    def count(self, notes: HostAdditions) -> None:
        """Add what was noted: the device's part of the step was taken again by itself."""
        self._sums.count(notes)

    def save_sums(self) -> State:
        """What was added and not read yet, to be recalled when a step is undone."""
        return copy.deepcopy(self._sums.state_dict())

    def restore_sums(self, state: State) -> None:
        """Forget what was added since; nobody has read it."""
        self._sums.load_state_dict(state)

    def state_tensors(self) -> dict[str, Tensor]:
        """The tensors that a step adds to, always the same ones."""
        return self._sums.state_tensors()

    def state_dict(self) -> State:
        """What a checkpoint keeps; everybody has got what was on its way."""
        assert not self._requests
        windows = [window.state_dict() for window in self._windows]
        return {"sums": self._sums.state_dict(), "windows": windows}

    def load_state_dict(self, state: State) -> None:
        """Go on from a checkpoint; a window that it does not know begins empty."""
        self._requests.clear()
        self._sums.load_state_dict(state["sums"])
        known: dict[str, list[State]] = {}
        for one in state["windows"]:
            known.setdefault(one["name"], []).append(one)
        for window in self._windows:
            named = known.get(window.name)
            if named:
                window.load_state_dict(named.pop(0))
            else:
                window.empty()

    def _spread(self, totals: Totals) -> None:
        for name, (total, count) in totals.items():
            for window in self._windows if name != EMPTY_BATCH_LOSS else ():
                window.take(name, total, count)
            if self._notice is not None and count > 0 and not math.isfinite(total):
                self._notice(name, total / count)


def _name(take: Take) -> str:
    """What people know a function by."""
    owner = getattr(take, "__qualname__", type(take).__qualname__)
    return f"{getattr(take, '__module__', type(take).__module__)}.{owner}"
