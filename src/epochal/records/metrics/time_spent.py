"""Where the time of a run went: parts by size, and one sentence of advice."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, final

from epochal.records.layout.coerce import as_count, as_finite_numbers
from epochal.text.formatting import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

STARTUP = "start-up"
IMPORTS = f"{STARTUP}/imports"
CHECKS = f"{STARTUP}/checks"
RECORD = f"{STARTUP}/record"
BUILDING = f"{STARTUP}/building"
FIRST_BATCH = f"{STARTUP}/first batch"
DATA_WAIT = "data wait"
STEPS = "steps"
EVALUATION = "evaluation"
SAVING = "saving"
CAPTURE = "capture"
OTHER = "other"
HOOKS_PREFIX = "hooks/"
"""Prefix of the time of each hook."""

_SMALLEST_SHARE = 0.005
_MIN_ADVICE_SECONDS = 2.0
_HOOK_PERIODS = {"Console": "log.console_every", "Recording": "log.record_every"}
_SHARES = {DATA_WAIT: 0.1, EVALUATION: 0.3, SAVING: 0.1, CAPTURE: 0.2, STARTUP: 0.3, OTHER: 0.2}
"""The share of a part from which on there is advice about it."""

_HOOK_SHARE = 0.05
_REMEDIES = {
    EVALUATION: "evaluate less often with train.eval_every",
    SAVING: "save less often, or to a faster disk",
    CAPTURE: "worthwhile in longer runs; engine.step: eager disables it",
    STARTUP: "not significant in longer runs",
    OTHER: "`epochal profile FILE` shows the time of steps; use a Python profiler for the rest",
}


@final
@dataclass(frozen=True, slots=True)
class TimeShare:
    """One part of a run's time."""

    name: str
    seconds: float
    share: float
    """Share of the total, from 0 to 1."""

    note: str = ""
    """The largest part of it, if known."""


@final
@dataclass(frozen=True, slots=True)
class TimeSpent:
    """The time of all processes of a run together."""

    times: Mapping[str, float] = field(default_factory=dict)
    """Seconds of each part."""

    redone_seconds: float = 0.0
    """Seconds of steps that were repeated or discarded by a rollback."""

    killed: int = 0
    """How many processes were killed before they recorded their last seconds."""

    @property
    def seconds(self) -> float:
        """The total."""
        return sum(self.times.values())

    def go_back(self, at: TimeSpent) -> TimeSpent:
        """The time after a rollback to a state that was saved at ``at``."""
        redone = at.redone_seconds + max(0.0, self.seconds - at.seconds)
        return replace(self, redone_seconds=redone) if at.times else self

    def to_fields(self) -> dict[str, Any]:
        """The fields of ``status.json`` and ``result.json``."""
        times = {"seconds": self.seconds, "times": dict(self.times)}
        return times | {"redone_seconds": self.redone_seconds, "killed": self.killed}


def parse_time_spent(fields: Mapping[str, Any]) -> TimeSpent:
    """Read the fields of a file or checkpoint, which may be damaged."""
    redone = as_finite_numbers(fields).get("redone_seconds", 0.0)
    return TimeSpent(as_finite_numbers(fields.get("times")), redone, as_count(fields.get("killed")))


def sum_time_spent(several: Iterable[TimeSpent]) -> TimeSpent:
    """The time of several runs together."""
    parts = list(several)
    return TimeSpent(
        add_times(*(one.times for one in parts)),
        sum(one.redone_seconds for one in parts),
        sum(one.killed for one in parts),
    )


def add_times(*several: Mapping[str, float]) -> dict[str, float]:
    """The sum of each part, the largest first."""
    parts = {part: 0.0 for one in several for part in one}
    sums = {part: sum(one.get(part, 0.0) for one in several) for part in parts}
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


def describe_attempts(spent: TimeSpent, attempts: int) -> str:
    """A note on how exact the time over several attempts is; empty for one attempt."""
    words = [f"over {format_count(attempts, 'attempt')}"] if attempts > 1 else []
    if spent.killed:
        who = "one was" if spent.killed == 1 else f"{spent.killed} were"
        words.append(f"at least, since {who} killed before recording the last seconds")
    if spent.redone_seconds:
        words.append(
            f"{format_precise_time(spent.redone_seconds)} of it for steps that do not count"
        )
    return "; ".join(words)


def compute_time_shares(times: Mapping[str, float]) -> list[TimeShare]:
    """The parts of a run's time, the largest first; small parts are summed up as the last one.

    The start-up is one part, with a note of its largest phase.
    """
    total = sum(times.values())
    if total <= 0:
        return []
    shares = [
        TimeShare(_name(part), seconds, seconds / total, _startup_note(times) * (part == STARTUP))
        for part, seconds in _merge_startup(times).items()
        if part != OTHER and seconds >= _SMALLEST_SHARE * total
    ]
    shares.sort(key=lambda one: -one.seconds)
    rest = total - sum(one.seconds for one in shares)
    if rest >= _SMALLEST_SHARE * total:
        shares.append(TimeShare(OTHER, rest, rest / total))
    return shares


def suggest_speedup(
    times: Mapping[str, float],
    device_time: Mapping[str, float],
    *,
    shortest: float = _MIN_ADVICE_SECONDS,
) -> str:
    """What would make such a run faster, in one sentence; empty without times.

    Args:
        times: Seconds of each part.
        device_time: Measurements of the device; empty where it is synchronous with the host.
        shortest: Minimum seconds after the start-up for any advice.
    """
    total = sum(times.values())
    if total <= 0:
        return ""
    parts = _merge_startup(times)
    if total - parts[STARTUP] < shortest:
        return "the run is too short to find what slows it down"
    notable = {
        part: seconds / total
        for part, seconds in parts.items()
        if seconds / total >= _threshold(part)
    }
    if notable:
        part = max(notable, key=lambda part: notable[part])
        return _advise_on(part, notable[part])
    waiting = 1 - device_time.get("behind", 1.0)
    if waiting > 0.5:
        what_now = "engine.step: auto or graph takes work off the host"
        if device_time.get("captured"):
            what_now = "larger batches or fewer hooks take work off the host"
        return f"the device waited for the host in {waiting:.0%} of the sampled steps: {what_now}"
    return "no bottleneck found"


def describe_device_time(device_time: Mapping[str, float]) -> str:
    """The measurements of the device as a text; empty without any."""
    if not device_time.get("samples"):
        return ""
    seconds, behind = device_time.get("step_seconds", 0.0), device_time.get("behind", 0.0)
    pace = f"{format_precise_time(seconds)} a step"
    if not behind:
        return f"waits for the host, {pace}"
    return f"busy in {behind:.0%} of the sampled steps, {pace}"


def format_precise_time(seconds: float) -> str:
    """A time in three digits or so: ``12.3 ms``, ``4.56 s``, ``2:03:45``."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 0.1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 100:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


def is_startup_part(part: str) -> bool:
    """Whether a part belongs to the start-up."""
    return part.partition("/")[0] == STARTUP


def _merge_startup(times: Mapping[str, float]) -> dict[str, float]:
    """The parts, with the whole start-up as one."""
    rest = {part: seconds for part, seconds in times.items() if not is_startup_part(part)}
    return rest | {
        STARTUP: sum(seconds for part, seconds in times.items() if is_startup_part(part))
    }


def _startup_note(times: Mapping[str, float]) -> str:
    """The largest phase of the start-up; empty if only the total is known."""
    named = {part: times[part] for part in times if is_startup_part(part) and part != STARTUP}
    if not named:
        return ""
    largest = max(named, key=lambda part: named[part])
    return f"mostly {largest.removeprefix(f'{STARTUP}/')}, {format_precise_time(named[largest])}"


def _name(part: str) -> str:
    return part.removeprefix(HOOKS_PREFIX)


def _threshold(part: str) -> float:
    if part.startswith(HOOKS_PREFIX):
        return _HOOK_SHARE
    return _SHARES.get(part, 1.1)


def _advise_on(part: str, share: float) -> str:
    if part == DATA_WAIT:
        return (
            f"the run waited for data {share:.0%} of the time: give the loader more workers "
            "(num_workers, or data.train.workers), or keep small data in memory with "
            "ep.data.Tensors"
        )
    name = _name(part)
    if part.startswith(HOOKS_PREFIX):
        key = _HOOK_PERIODS.get(name)
        remedy = f"raise {key}" if key else "call it less often with every:"
        return f"{name} took {share:.0%} of the time: {remedy}"
    return f"{name} took {share:.0%} of the time: {_REMEDIES[part]}"
