"""Weighted means of what steps produce, each reader with a window of its own.

Steps add ``(value, count)`` pairs to the run's ``Meter``; nothing is read from the device
then. Whoever wants means asks for a window once and reads it whenever it likes::

    def run_start(self, run):
        self._window = run.meter.window()

    def step_end(self, run):
        means = self._window.read()        # {"loss": 0.31, "acc": 0.9}, since the last read

Windows do not disturb each other: the console may read every 50 steps and the record every
10. Reading moves everything since anybody's last read in one packed transfer and adds it to
all windows, so the cost of a step does not grow with the number of readers, and a value that
is not finite spoils only the windows that contain it.

Names are bare here. A reader that records them writes ``train/<name>``. Means of a whole
epoch are recorded by the engine as ``train/epoch/<name>`` and handed to ``epoch_end`` as
``train/<name>``; values of evaluations are recorded by the engine too.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Number = float | int | Tensor

Weighted = tuple["Number", "Number"]  # value and count


@final
class Window:
    """Means since this reader's last read; made by ``Meter.window``."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._sums: dict[str, float] = {}
        self._counts: dict[str, float] = {}

    def read(self) -> dict[str, float]:
        """The means since the last read, and begin anew."""
        means = self.peek()
        self._sums.clear()
        self._counts.clear()
        return means

    def peek(self) -> dict[str, float]:
        """The means since the last read, which stay in the window."""
        self._meter.fold()
        return {name: self._sums[name] / count for name, count in self._counts.items() if count > 0}

    def close(self) -> None:
        """Stop collecting."""
        self._meter.forget(self)

    def take(self, name: str, total: float, count: float) -> None:
        """Add a sum of values times counts, and the sum of the counts."""
        self._sums[name] = self._sums.get(name, 0.0) + total
        self._counts[name] = self._counts.get(name, 0.0) + count


@final
class Meter:
    """Sums of values times counts: float64 numbers on the CPU, tensors on a device.

    On the CPU a tensor is read at once: that takes less time than any operation on it.

    Args:
        device: Where values come from.
        notice: Told the name and the mean of what was read and is not finite.
    """

    def __init__(
        self,
        device: torch.device | str = "cpu",
        *,
        notice: Callable[[str, float], object] | None = None,
    ) -> None:
        self._notice = notice
        self._device = torch.device(device)
        self._on_cpu = self._device.type == "cpu"
        self._dtype = _sum_dtype(self._device)
        self._sums: dict[str, Number] = {}
        self._counts: dict[str, Number] = {}
        self._windows: list[Window] = []

    def window(self) -> Window:
        """A new reader, whose first window begins now."""
        self.fold()
        window = Window(self)
        self._windows.append(window)
        return window

    def forget(self, window: Window) -> None:
        """Take no more notice of a reader."""
        self._windows.remove(window)

    def add(self, values: Mapping[str, Weighted]) -> None:
        """Count in one batch's values."""
        for name, (value, count) in values.items():
            self.add_one(name, value, count)

    def add_one(self, name: str, value: Number, count: Number) -> None:
        """Count in one value; counts that are numbers and not positive are left out."""
        if isinstance(value, Tensor):
            value = value.item() if self._on_cpu else value.detach().to(self._dtype)
        if isinstance(count, Tensor):
            count = count.item() if self._on_cpu else count.detach()
        if not isinstance(count, Tensor) and count <= 0:
            return
        if name in self._sums:
            self._sums[name] += value * count
            self._counts[name] += count
        else:
            self._sums[name] = value * count
            self._counts[name] = count

    def fold(self) -> None:
        """Move what was added since the last time into every window, in one transfer."""
        if not self._sums:
            return
        names = list(self._sums)
        totals = _read_packed([*self._sums.values(), *self._counts.values()])
        self._sums.clear()
        self._counts.clear()
        for name, total, count in zip(names, totals, totals[len(names) :], strict=False):
            for window in self._windows:
                window.take(name, total, count)
            if self._notice is not None and count > 0 and not math.isfinite(total):
                self._notice(name, total / count)


def _read_packed(values: Iterable[Number]) -> list[float]:
    """All values as floats; those on a device come over together."""
    numbers = list(values)
    tensors = [value for value in numbers if isinstance(value, Tensor)]
    if not tensors:
        return [float(value) for value in numbers]
    dtype = _sum_dtype(tensors[0].device)
    packed = torch.stack([tensor.to(tensors[0].device, dtype).reshape(()) for tensor in tensors])
    read = iter(packed.tolist())
    return [next(read) if isinstance(value, Tensor) else float(value) for value in numbers]


def _sum_dtype(device: torch.device) -> torch.dtype:
    # Apple's devices have no float64 at all.
    return torch.float32 if device.type == "mps" else torch.float64
