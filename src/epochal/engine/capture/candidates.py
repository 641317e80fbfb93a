"""Batch shapes that may be captured: their first batches, and the shapes that were refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from epochal.engine.capture.batch_layout import copy_batch, find_changed_constant
from epochal.engine.capture.fingerprint import groups_fingerprint

if TYPE_CHECKING:
    from collections.abc import Hashable

    from epochal.engine.capture.batch_layout import LayoutKey
    from epochal.engine.capture.fingerprint import Fingerprint
    from epochal.engine.feed.feed import Microbatches
    from epochal.engine.run.engine_run import EngineRun

_MAX_COUNTED_SHAPES = 1000


@final
@dataclass
class CaptureCandidate:
    """A shape that may be captured soon."""

    groups: Fingerprint
    """The optimizer options at its first step."""

    batches: list[Microbatches] = field(default_factory=list)


@final
class CaptureCandidates:
    """The first batches of the few shapes that occur most often; few, since they take memory."""

    def __init__(self, *, max_shapes: int) -> None:
        self._max_shapes = max_shapes
        self._candidates: dict[Hashable, CaptureCandidate] = {}
        self._counts: Counter[Hashable] = Counter()
        self._refused: set[Hashable] = set()
        self._constant = ""

    def __len__(self) -> int:
        return len(self._counts)

    def find(self, key: Hashable) -> CaptureCandidate | None:
        """The candidate of a shape, if it has one."""
        return self._candidates.get(key)

    def is_refused(self, key: Hashable) -> bool:
        """Whether a capture of the shape was refused."""
        return key in self._refused

    def add(self, key: Hashable, microbatches: Microbatches, run: EngineRun) -> None:
        """Count a step of a shape, and copy its batches if there is room."""
        self._note(key)
        candidate = self._candidates.get(key)
        if candidate is None:
            if not self._make_room(key):
                return
            candidate = self._candidates[key] = CaptureCandidate(groups_fingerprint(run))
        candidate.batches.append(copy_batch(microbatches))

    def pop(self, key: Hashable) -> CaptureCandidate:
        """Remove and return the candidate of a shape."""
        return self._candidates.pop(key)

    def refuse(self, key: Hashable) -> None:
        """Take steps of this shape eagerly from now on."""
        self._refused.add(key)

    def clear(self) -> None:
        """Forget all shapes."""
        self._candidates.clear()
        self._counts.clear()
        self._refused.clear()
        self._constant = ""

    def explain_differences(self) -> str:
        """Why shapes differ, for a message."""
        if self._constant:
            return f"{self._constant} changes from batch to batch, and a graph would keep it"
        return "shapes of batches do not repeat"

    def _note(self, key: Hashable) -> None:
        if len(self._counts) >= _MAX_COUNTED_SHAPES:
            self._counts.clear()
        if self._counts and not self._constant and key not in self._counts:
            known: Any = next(reversed(self._counts))
            self._constant = _find_constant(known, key)
        self._counts[key] += 1

    def _make_room(self, key: Hashable) -> bool:
        """Whether a shape may be added; a rarer one is dropped if there are too many."""
        if len(self._candidates) < self._max_shapes:
            return True
        rarest = min(self._candidates, key=lambda one: self._counts[one])
        if self._counts[key] <= self._counts[rarest]:
            return False
        del self._candidates[rarest]
        return True


def _find_constant(first: LayoutKey, second: LayoutKey) -> str:
    """The first constant in which the microbatches of two steps differ."""
    if len(first) == len(second) == 3:  # of steps of several kinds
        first, second = first[1], second[1]
    pairs = zip(first[1], second[1], strict=False)
    return next((found for one, other in pairs if (found := find_changed_constant(one, other))), "")
