"""The attempts of a run, and which of their points are current.

Each process that works on a run is an attempt; a rollback to an earlier state begins another one.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, final

from epochal.records.layout.process import host_name, utc_now

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

STARTED = "started"
ROLLBACK = "rollback"
_QUEUE_VARIABLE = "SLURM_RESTART_COUNT"  # how often Slurm restarted this job

MAX_COUNT = 2**63 - 1
"""Stands for no limit on rows or steps."""


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One process that worked on a run, up to or since a rollback."""

    attempt: int
    """0 for the process that started the run, then 1, 2, ..."""

    started: str = ""
    host: str = ""
    pid: int = 0
    command: str = ""
    checkpoint: str = ""
    """The checkpoint that it started from; empty for the first process."""

    origin: int | None = None
    """The attempt that wrote the checkpoint."""

    step: int = 0
    """The step of the checkpoint."""

    kept_points: int | None = None
    """The number of points when the checkpoint was taken; None if unknown."""

    cause: str = ""
    """Why it began: ``started``, ``resumed`` by a user, ``retried`` by a supervisor, ``requeued``
    after preemption, or ``rollback`` to an earlier state."""

    overrides: tuple[str, ...] = ()
    """All overrides of the recorded config so far."""

    changed: tuple[str, ...] = ()
    """What differed from the attempt before, and was allowed: config, code or data."""

    code: Mapping[str, str] = field(default_factory=dict)
    """Digest of each project file that it imported."""

    def to_json(self) -> dict[str, Any]:
        """The entry in ``run.json``."""
        values = asdict(self)
        return {name: value for name, value in values.items() if value not in (None, "", (), {})}


def begin_attempt(number: int, cause: str = STARTED) -> Attempt:
    """A new attempt of this process, starting now."""
    host, pid = host_name(), os.getpid()
    return Attempt(attempt=number, started=utc_now(), host=host, pid=pid, cause=cause)


def find_cause(status: str, *, is_supervised: bool) -> str:
    """Why this process resumes a run whose previous attempt ended with ``status``."""
    if os.environ.get(_QUEUE_VARIABLE, "0") not in ("", "0"):
        return "requeued"
    if is_supervised:
        return "requeued" if status == "preempted" else "retried"
    return "resumed"


def add_rollback_attempt(
    run: Mapping[str, Any], number: int, *, checkpoint: str, origin: int, step: int, points: object
) -> dict[str, Any]:
    """``run.json`` with one more attempt, which starts from a checkpoint after a rollback."""
    listed = run.get("attempts")
    before = listed if isinstance(listed, list) else []
    # The process is the same, and so are its command and its code.
    process = before[-1] if before and isinstance(before[-1], dict) else {}
    attempt = {
        **{name: value for name, value in process.items() if name != "kept_points"},
        **begin_attempt(number, ROLLBACK).to_json(),
        **{"checkpoint": checkpoint, "origin": origin, "step": step},
        **({"kept_points": points} if _is_count(points) else {}),
    }
    return {**run, "attempts": [*before, attempt]}


def read_attempts(run: Mapping[str, Any]) -> list[Attempt]:
    """The attempts in ``run.json``, without damaged entries."""
    listed = run.get("attempts")
    entries = listed if isinstance(listed, list) else []
    return [found for entry in entries if (found := _read_one(entry)) is not None]


def _read_one(entry: object) -> Attempt | None:
    if not isinstance(entry, dict) or not _is_count(entry.get("attempt")):
        return None
    texts = {
        name: value
        for name in ("started", "host", "command", "checkpoint", "cause")
        if isinstance(value := entry.get(name), str)
    }
    counts = {
        name: value
        for name in ("attempt", "pid", "origin", "step", "kept_points")
        if _is_count(value := entry.get(name))
    }
    lists = {
        name: tuple(map(str, value))
        for name in ("overrides", "changed")
        if isinstance(value := entry.get(name), list)
    }
    code = entry.get("code")
    files = (
        {str(name): str(digest) for name, digest in code.items()} if isinstance(code, dict) else {}
    )
    known: dict[str, Any] = {**texts, **counts, **lists, "code": files}
    return Attempt(**known)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def find_valid_ranges(
    first_steps: Mapping[int, int], known: Sequence[Attempt]
) -> dict[int, tuple[int, int]]:
    """Which points of each attempt are current; attempts that are not returned have none.

    An attempt adds its points to those that existed when its checkpoint was taken. An attempt
    that ``run.json`` does not list is taken to replace everything from its first step on.

    Args:
        first_steps: The lowest step of each attempt that has points.
        known: The attempts in ``run.json``.

    Returns:
        By attempt: the first row that is not current, and the last step that is.
    """
    listed = {one.attempt: one for one in known}
    pending = sorted({*listed, *first_steps})
    found: dict[int, tuple[int, int]] = {}
    rows, step = MAX_COUNT, MAX_COUNT
    while pending:
        number = pending.pop()
        found[number] = rows, step
        attempt = listed.get(number)
        if attempt is None:
            step = min(step, first_steps[number] - 1)
            continue
        if attempt.kept_points is None:
            step = min(step, attempt.step)
        else:
            rows = min(rows, attempt.kept_points)
        origin = number - 1 if attempt.origin is None else attempt.origin
        pending = [one for one in pending if one <= origin]
    return found


def select_current_points(
    numbers: NDArray[np.integer[Any]], steps: NDArray[np.integer[Any]], known: Sequence[Attempt]
) -> NDArray[np.bool_]:
    """A mask of the points, in the order they were logged, that no later attempt replaced."""
    import numpy as np

    found = np.unique(numbers)
    first_steps = {int(number): int(steps[numbers == number].min()) for number in found}
    return mask_ranges(numbers, steps, find_valid_ranges(first_steps, known))


def mask_ranges(
    numbers: NDArray[np.integer[Any]],
    steps: NDArray[np.integer[Any]],
    ranges: Mapping[int, tuple[int, int]],
    *,
    start: int = 0,
) -> NDArray[np.bool_]:
    """A mask of the points in the ranges of their attempts; the first one is in row ``start``."""
    import numpy as np

    current = np.zeros(len(numbers), dtype=bool)
    for number, (end, step) in ranges.items():
        own = slice(max(0, end - start))
        current[own] |= (numbers[own] == number) & (steps[own] <= step)
    return current
