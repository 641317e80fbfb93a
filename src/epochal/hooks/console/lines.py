"""What is known at one moment of a run, and the log line that says it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from epochal.hooks.console.figures import show_number, show_seconds, show_time

if TYPE_CHECKING:
    from collections.abc import Mapping

GAP = "  "


@final
@dataclass(frozen=True, kw_only=True)
class Position:
    """How far a run, or one evaluation, has come."""

    epoch: int
    """Counted from 1."""

    num_epochs: int | None
    """None when the run ends by steps, samples or time and the epochs are not known."""

    index: int
    """Steps taken in this epoch, or batches seen by this evaluation."""

    length: int | None
    """How many there will be; None when the data does not say."""


@final
@dataclass(frozen=True, kw_only=True)
class Pace:
    """How fast it goes; every time in seconds."""

    elapsed: float = 0.0
    left: float | None = None
    """For the whole run; None while nobody can know."""

    rate: float = 0.0
    """Samples per second, or steps where samples are not counted."""

    unit: str = "st"
    """``sa`` or ``st``: what ``rate`` counts."""


@final
@dataclass(frozen=True, kw_only=True)
class Reading:
    """The numbers of one interval, read from the device once."""

    values: Mapping[str, float] = field(default_factory=dict)
    """Losses and metrics: means since the last reading."""

    lr: float | None = None
    step_seconds: float | None = None
    data_seconds: float | None = None
    memory_mib: int | None = None
    grad_norm: float | None = None


def show_count(index: int, total: int | None) -> str:
    """``index/total`` with the index padded, so that the text keeps its width."""
    return f"{index}" if total is None else f"{index:>{len(str(total))}}/{total}"


def show_values(values: Mapping[str, float]) -> list[str]:
    """``name: number`` for each."""
    return [f"{name}: {show_number(value)}" for name, value in values.items()]


def interval_line(position: Position, pace: Pace, reading: Reading) -> str:
    """Everything about the steps since the last such line."""
    cells = [f"{_epoch(position)}[{show_count(position.index, position.length)}]"]
    if reading.lr is not None:
        cells.append(f"lr: {reading.lr:.1e}")
    if pace.left is not None:
        cells.append(f"eta: {show_time(pace.left)}")
    if reading.step_seconds is not None:
        cells.append(f"time: {reading.step_seconds:.3f}")
    if reading.data_seconds is not None:
        cells.append(f"data_time: {reading.data_seconds:.3f}")
    if reading.memory_mib is not None:
        cells.append(f"memory: {reading.memory_mib}")
    if reading.grad_norm is not None:
        cells.append(f"grad_norm: {show_number(reading.grad_norm)}")
    return GAP.join([*cells, *show_values(reading.values)])


def summary_line(
    position: Position, split: str, values: Mapping[str, float], *, seconds: float, best: bool
) -> str:
    """The outcome of one epoch or evaluation; the best one so far carries a star."""
    # A run that only evaluates is in no epoch at all.
    epoch = [_epoch(position)] if position.epoch or position.num_epochs else []
    cells = [*epoch, f"{split:<5}", *show_values(values), f"({show_seconds(seconds)})"]
    if best:
        cells.append("* best")
    return GAP.join(cells)


def _epoch(position: Position) -> str:
    return f"Epoch [{show_count(position.epoch, position.num_epochs)}]"
