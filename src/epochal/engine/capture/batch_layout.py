"""Splits a batch into its tensors and a key of its layout, and counts layouts for capture."""

from __future__ import annotations

import copy
import dataclasses
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from torch import Size, Tensor

from epochal.engine.capture.fingerprint import groups_fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable

    from epochal.engine.capture.fingerprint import Fingerprint
    from epochal.engine.feed.feed import Microbatches
    from epochal.engine.interfaces.task import Batch
    from epochal.engine.run.engine_run import EngineRun

    LayoutKey = Any  # nested tuples, as ``flatten_tensors`` returns them


_CONSTANTS = (type(None), bool, int, float, str, bytes)
_MAX_COUNTED_SHAPES = 1000


class UnknownLayoutError(Exception):
    """A batch holds an object whose tensors cannot be found; the message names its type."""


def flatten_tensors(value: Batch, tensors: list[Tensor]) -> Hashable:
    """Append the tensors of a batch to a list; batches with equal keys differ only in tensors."""
    kind = type(value)
    if isinstance(value, Tensor):
        tensors.append(value)
        return value.shape, value.dtype, value.requires_grad
    if kind is dict:
        return dict, tuple([(name, flatten_tensors(item, tensors)) for name, item in value.items()])
    if kind is list or kind is tuple:
        return kind, tuple([flatten_tensors(item, tensors) for item in value])
    if isinstance(value, _CONSTANTS):
        return kind, value
    parts = _parts(value)
    return kind, tuple([(name, flatten_tensors(item, tensors)) for name, item in parts.items()])


def unflatten_tensors(value: Batch, tensors: Iterator[Tensor]) -> Batch:
    """The same batch with other tensors, in the order of ``flatten_tensors``."""
    if isinstance(value, Tensor):
        return next(tensors)
    if isinstance(value, _CONSTANTS):
        return value
    if isinstance(value, list | tuple):
        items = [unflatten_tensors(item, tensors) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return _with_parts(
        value, {name: unflatten_tensors(item, tensors) for name, item in _parts(value).items()}
    )


def map_tensors(value: Batch, make: Callable[[Tensor], Tensor]) -> tuple[Batch, list[Tensor]]:
    """A copy of a batch with ``make`` applied to its tensors, and those tensors."""
    tensors: list[Tensor] = []
    flatten_tensors(value, tensors)
    made = [make(tensor) for tensor in tensors]
    return unflatten_tensors(value, iter(made)), made


def copy_batch(value: Batch) -> Batch:
    """A copy of a batch that shares no tensor with it."""
    return map_tensors(value, _copy_tensor)[0]


def _copy_tensor(tensor: Tensor) -> Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def list_tensors(value: Batch) -> list[Tensor]:
    """The tensors of a batch, in the order of ``flatten_tensors``."""
    tensors: list[Tensor] = []
    flatten_tensors(value, tensors)
    return tensors


def find_changed_constant(first: LayoutKey, second: LayoutKey, path: str = "batch") -> str:
    """The path of the first constant in which two keys differ; empty if only tensors do."""
    if first == second or isinstance(first[0], Size) or isinstance(second[0], Size):
        return ""
    if first[0] is not second[0] or not isinstance(first[1], tuple):
        return path
    if len(first[1]) != len(second[1]):
        return ""
    is_named = first[0] not in (list, tuple)
    for index, (here, there) in enumerate(zip(first[1], second[1], strict=True)):
        name = repr(here[0]) if is_named else str(index)
        inner = (here[1], there[1]) if is_named else (here, there)
        found = find_changed_constant(*inner, f"{path}[{name}]")
        if found:
            return found
    return ""


def _parts(value: Batch) -> dict[Any, Batch]:
    """The items of a mapping, the elements of a named tuple, or the fields of a dataclass."""
    if isinstance(value, Mapping) and hasattr(value, "update"):
        return dict(value)
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    raise UnknownLayoutError(type(value).__qualname__)


def _with_parts(value: Batch, parts: dict[Any, Batch]) -> Batch:
    if type(value) is dict:
        return parts
    changed = copy.copy(value)
    if isinstance(value, Mapping):
        changed.update(parts)
        return changed
    for name, item in parts.items():
        object.__setattr__(changed, name, item)
    return changed


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
