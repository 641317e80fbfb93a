"""Splits a batch into smaller ones by the rows of its tensors."""

from __future__ import annotations

import copy
import dataclasses
import numbers
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, final

import numpy as np
from torch import Tensor

from epochal.engine.device.move import batch_size, refill_mapping

if TYPE_CHECKING:
    from epochal.engine.interfaces.task import Batch

RowSelection = slice | list[int]
_NESTS = (Tensor, np.ndarray, list, tuple, Mapping)


class UnsplittableError(Exception):
    """A batch cannot be split; the message says why."""


@final
class SplitMicrobatches(tuple["Batch", ...]):
    """Microbatches of one step; several may belong to one batch of the loader."""

    batch_indices: list[int]
    """The batch of the step that each belongs to."""


def split_batches(batches: tuple[Batch, ...], most: int) -> SplitMicrobatches:
    """The batches of a step as microbatches of at most ``most`` samples, in the same order."""
    batch_indices: list[int] = []
    found: list[Batch] = []
    for index, batch in enumerate(batches):
        parts = split_batch(batch, most)
        batch_indices += [index] * len(parts)
        found += parts
    chunks = SplitMicrobatches(found)
    chunks.batch_indices = batch_indices
    return chunks


def get_batch_index(microbatches: tuple[Batch, ...], index: int) -> int:
    """The index, in its step, of the batch that a microbatch belongs to."""
    return (
        microbatches.batch_indices[index] if isinstance(microbatches, SplitMicrobatches) else index
    )


def split_batch(batch: Batch, most: int) -> list[Batch]:
    """The batch in nearly equal parts of at most ``most`` samples; itself if it is small."""
    rows = batch_size(batch)
    if rows is None:
        raise UnsplittableError(f"a {type(batch).__name__} does not show how many samples it has")
    if rows <= most:
        return [batch]
    count = -(-rows // most)
    bounds = [rows * number // count for number in range(count + 1)]
    return [_take(batch, slice(*ends), rows, "batch") for ends in pairwise(bounds)]


def resize_batch(batch: Batch, size: int) -> Batch:
    """A batch of ``size`` samples, repeated or cut from a batch."""
    rows = batch_size(batch)
    if not rows:
        raise UnsplittableError(f"a {type(batch).__name__} does not show how many samples it has")
    return _take(batch, [index % rows for index in range(size)], rows, "batch")


def take_rows(batch: Batch, part: slice) -> Batch:
    """A batch of some of the samples."""
    rows = batch_size(batch)
    if not rows:
        raise UnsplittableError(f"a {type(batch).__name__} does not show how many samples it has")
    return _take(batch, part, rows, "batch")


def _take(value: Batch, part: RowSelection, rows: int, where: str) -> Batch:
    """The part of a value that belongs to some of the samples."""
    if isinstance(value, Tensor | np.ndarray):
        return _take_rows(value, part, rows, where) if value.ndim else value
    if value is None or isinstance(value, str | bytes | numbers.Number):
        return value
    if isinstance(value, Mapping):
        taken = {key: _take(item, part, rows, f"{where}.{key}") for key, item in value.items()}
        return refill_mapping(value, taken)
    if isinstance(value, list | tuple):
        return _take_items(value, part, rows, where)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = copy.copy(value)
        for field in dataclasses.fields(value):
            item = _take(getattr(value, field.name), part, rows, f"{where}.{field.name}")
            object.__setattr__(changed, field.name, item)
        return changed
    raise UnsplittableError(f"{where} is a {type(value).__name__}, which has no rows to take")


def _take_items(value: Batch, part: RowSelection, rows: int, where: str) -> Batch:
    if not any(isinstance(item, _NESTS) for item in value):  # such as the names of the samples
        return _take_rows(value, part, rows, where)
    items = [_take(item, part, rows, f"{where}[{i}]") for i, item in enumerate(value)]
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)


def _take_rows(value: Batch, part: RowSelection, rows: int, where: str) -> Batch:
    if len(value) != rows:
        raise UnsplittableError(f"{where} has {len(value)} rows, and the batch has {rows} samples")
    if isinstance(part, slice) or isinstance(value, Tensor | np.ndarray):
        return value[part]
    return type(value)(value[index] for index in part)
