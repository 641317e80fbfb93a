"""Where the time of a run went, for people: parts by size, and one sentence of advice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Mapping

START = "start-up"
WAIT = "data wait"
STEPS = "steps"
EVALUATION = "evaluation"
SAVING = "saving"
CAPTURE = "capture"
OTHER = "other"
HOOKS = "hooks/"
"""Stands before the name of each hook."""

_SMALLEST_SHARE = 0.005
_SHORT_SECONDS = 2.0
_PERIODS = {"Console": "log.console_every", "Recording": "log.record_every"}
_NOTABLE = {WAIT: 0.1, EVALUATION: 0.3, SAVING: 0.1, CAPTURE: 0.2, START: 0.3, OTHER: 0.2}
_NOTABLE_HOOK = 0.05
_REMEDIES = {
    EVALUATION: "evaluate less often with train.eval_every",
    SAVING: "save less often, or to a faster disk",
    CAPTURE: "that pays in longer runs, and engine.step: eager leaves it out",
    START: "longer runs will hardly notice",
    OTHER: "`epochal profile FILE` shows what the steps do, a Python profiler the rest",
}


@final
@dataclass(frozen=True, slots=True)
class Share:
    """One part of a run's time."""

    name: str
    seconds: float
    share: float
    """Of the whole, from 0 to 1."""


def share_out(times: Mapping[str, float]) -> list[Share]:
    """The parts of a run's time, the largest first; small ones come together, as the last."""
    total = sum(times.values())
    if total <= 0:
        return []
    shares = [
        Share(_name(part), seconds, seconds / total)
        for part, seconds in times.items()
        if part != OTHER and seconds >= _SMALLEST_SHARE * total
    ]
    shares.sort(key=lambda one: -one.seconds)
    rest = total - sum(one.seconds for one in shares)
    if rest >= _SMALLEST_SHARE * total:
        shares.append(Share(OTHER, rest, rest / total))
    return shares


def advise(
    times: Mapping[str, float],
    device_time: Mapping[str, float],
    *,
    shortest: float = _SHORT_SECONDS,
) -> str:
    """What would make such a run faster, in one sentence; empty if nothing is known.

    Args:
        times: Seconds of each part.
        device_time: What was seen of the device; empty where it works in step with the host.
        shortest: Seconds below which nothing can be said.
    """
    total = sum(times.values())
    if total <= 0:
        return ""
    if total < shortest:
        return "too short a run to say what slows it down"
    notable = {
        part: seconds / total
        for part, seconds in times.items()
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
        return f"the device waited for the host in {waiting:.0%} of the steps looked at: {what_now}"
    return "nothing stands out"


def describe_device_time(device_time: Mapping[str, float]) -> str:
    """What was seen of the device, in words; empty if nothing was."""
    if not device_time.get("samples"):
        return ""
    seconds, behind = device_time.get("step_seconds", 0.0), device_time.get("behind", 0.0)
    pace = f"{format_time(seconds)} a step"
    if not behind:
        return f"waits for the host, {pace}"
    return f"busy in {behind:.0%} of the steps looked at, {pace}"


def format_time(seconds: float) -> str:
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


def _name(part: str) -> str:
    return part.removeprefix(HOOKS)


def _threshold(part: str) -> float:
    if part.startswith(HOOKS):
        return _NOTABLE_HOOK
    return _NOTABLE.get(part, 1.1)


def _advise_on(part: str, share: float) -> str:
    if part == WAIT:
        return (
            f"the run waited for data {share:.0%} of the time: raise data.train.workers, or "
            "keep small data in memory with ep.data.Tensors"
        )
    name = _name(part)
    if part.startswith(HOOKS):
        key = _PERIODS.get(name)
        remedy = f"raise {key}" if key else "let it act less often with every:"
        return f"{name} took {share:.0%} of the time: {remedy}"
    return f"{name} took {share:.0%} of the time: {_REMEDIES[part]}"
