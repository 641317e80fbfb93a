"""The result of a profile: time per step, and the operators that take most of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from epochal.records.metrics.time_spent import DATA_WAIT, format_precise_time, suggest_speedup

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    Averages = Iterable[Any]  # of torch's FunctionEventAvg, which has no types

_STEP_MARK = "ProfilerStep"
_BETWEEN_OPERATORS = "(Python, between operators)"
_PYTHON = re.compile(r"\(\d+\): |^<built-in |^nn\.Module: ")  # lines of code, with stack=True
_MAX_NAME_LENGTH = 46
_BUSY_SHARE = 0.6


@final
@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of torch or one kernel; all numbers are per step."""

    name: str
    calls: float
    cpu_seconds: float
    """Self time on the host, without operators it calls."""

    device_seconds: float
    """Time of the kernels that it started."""


@final
@dataclass(frozen=True)
class Profile:
    """The profile of a few steps, which are slower than without the profiler."""

    steps: int
    step_seconds: float
    """Mean time of a step on the host."""

    operators: list[Operator]
    """Slowest first."""

    device_seconds: float = 0.0
    """Time of all kernels per step; 0 on the CPU."""

    times: Mapping[str, float] = field(default_factory=dict)
    """Host time of these steps in seconds by part."""

    dir: Path | None = None
    """The folder with the trace and the whole table."""

    @property
    def busy_share(self) -> float:
        """The share of the time in which the device was busy."""
        return min(1.0, self.device_seconds / self.step_seconds) if self.step_seconds else 0.0

    @property
    def advice(self) -> str:
        """How to make such steps faster, in one sentence."""
        found = suggest_speedup(self.times, {}, shortest=0.0)
        if found and found != "nothing stands out":
            return found
        if self.device_seconds and self.busy_share < _BUSY_SHARE:
            return (
                f"the device was busy {self.busy_share:.0%} of the time: engine.step: auto or "
                "graph takes work off the host"
            )
        if not self.operators:
            return "no operator was recorded"
        top, where = self.operators[0], "device" if self.device_seconds else "host"
        size = f"takes {_share(top, self):.0%} of the {where}'s time"
        if top.name == _BETWEEN_OPERATORS:
            remedy = "use larger batches or engine.step: compile"
            return f"Python between operators {size}: {remedy}"
        return f"{top.name} {size}"

    @property
    def shares(self) -> dict[str, float]:
        """Shares of the step time: data wait, host, and device busy in parallel."""
        total = sum(self.times.values())
        wait = self.times.get(DATA_WAIT, 0.0) / total if total else 0.0
        device = {"device": self.busy_share} if self.device_seconds else {}
        return {"data wait": wait, "host": 1 - wait, **device}


def summarise(averages: Averages, steps: int) -> tuple[list[Operator], float]:
    """The operators, and the seconds of all kernels, both per step."""
    rows = [one for one in averages if not _PYTHON.search(one.key)]
    host = [one for one in rows if one.device_type.name == "CPU"]
    kernels = [one for one in rows if one.device_type.name != "CPU" and not one.is_user_annotation]
    total = sum(one.self_device_time_total for one in kernels)
    attributed = sum(one.self_device_time_total for one in host)
    # Kernels of a CUDA graph belong to no operator, so they are listed themselves.
    shown = host if 2 * attributed >= total else [*host, *kernels]
    found = [
        Operator(
            _BETWEEN_OPERATORS if one.key.startswith(_STEP_MARK) else one.key,
            one.count / steps,
            one.self_cpu_time_total / steps / 1e6,
            one.self_device_time_total / steps / 1e6,
        )
        for one in shown
    ]
    found.sort(key=lambda one: (-one.device_seconds, -one.cpu_seconds))
    return found, total / steps / 1e6


def operator_lines(profile: Profile, limit: int) -> list[str]:
    """A short table of the operators that take most time."""
    has_device = bool(profile.device_seconds)
    header = ("operator", "calls", "host", *(("device",) if has_device else ()), "share")
    rows = [
        (
            _shorten(one.name),
            f"{one.calls:.3g}",
            format_precise_time(one.cpu_seconds),
            *((format_precise_time(one.device_seconds),) if has_device else ()),
            f"{_share(one, profile):.0%}",
        )
        for one in profile.operators[:limit]
    ]
    return _align(header, rows)


def _align(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with left-aligned names and right-aligned numbers."""
    first, *others = (max(len(row[i]) for row in (header, *rows)) for i in range(len(header)))
    return [
        "  ".join(
            [
                f"{row[0]:<{first}}",
                *(f"{cell:>{width}}" for cell, width in zip(row[1:], others, strict=True)),
            ]
        )
        for row in (header, *rows)
    ]


def _share(one: Operator, profile: Profile) -> float:
    """Share of the time of all kernels, or of all operators on the host."""
    if profile.device_seconds:
        return one.device_seconds / profile.device_seconds
    total = sum(other.cpu_seconds for other in profile.operators)
    return one.cpu_seconds / total if total else 0.0


def _shorten(name: str) -> str:
    return name if len(name) <= _MAX_NAME_LENGTH else name[: _MAX_NAME_LENGTH - 1] + "…"
