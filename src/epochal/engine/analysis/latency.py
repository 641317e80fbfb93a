"""Measures the latency of a call: mean and standard deviation after a warm-up."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING, final

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = Callable[[], object]

_MAX_RUNS = 30
_MIN_RUNS = 2
_WARMUP_RUNS = 3
_MAX_SECONDS = 1.0


@final
@dataclass(frozen=True, slots=True)
class Latency:
    """Time from the start of a call until the device has finished it."""

    mean_seconds: float
    std_seconds: float
    runs: int


def measure_latency(
    prepare: Callable[[], Call],
    device: torch.device,
    *,
    now: Callable[[], float] = time.perf_counter,
) -> Latency:
    """Repeat a call for up to a second, at least twice.

    Args:
        prepare: Returns a function for one call; its own time does not count.
        device: The device of the call; it is synchronized after each call.
        now: Returns seconds of a monotonic clock.
    """
    begun = now()
    for _ in range(_WARMUP_RUNS):
        prepare()()
        if now() - begun > _MAX_SECONDS / 2:
            break
    time_one = _timer(device, now)
    seconds: list[float] = []
    begun = now()
    while len(seconds) < _MIN_RUNS or (len(seconds) < _MAX_RUNS and now() - begun < _MAX_SECONDS):
        seconds.append(time_one(prepare()))
    return Latency(fmean(seconds), stdev(seconds), len(seconds))


def _timer(device: torch.device, now: Callable[[], float]) -> Callable[[Call], float]:
    if device.type == "cuda":
        return _time_on_cuda
    synchronize = getattr(getattr(torch, device.type, None), "synchronize", None)

    def time_on_host(call: Call) -> float:
        if synchronize is not None:
            synchronize()
        begun = now()
        call()
        if synchronize is not None:
            synchronize()
        return now() - begun

    return time_on_host


def _time_on_cuda(call: Call) -> float:
    begin, end = (_event() for _ in range(2))
    torch.cuda.synchronize()  # earlier work, such as copies of inputs, does not count
    begin.record()
    call()
    end.record()
    end.synchronize()
    milliseconds: float = begin.elapsed_time(end)
    return milliseconds / 1e3


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # by torch
