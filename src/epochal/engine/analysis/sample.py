"""The first sample of data as a batch of one, and copies of batches."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from epochal.engine.device.move import batch_size
from epochal.errors import DataError, TaskError, suggest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from epochal.engine.interfaces.task import Batch, Loader


def first_sample(loader: Loader) -> Batch:
    """The first sample of a loader's data, as a batch of one.

    Does not iterate a ``DataLoader``, so that its state does not change.
    """
    if isinstance(loader, Iterator):
        raise DataError(
            "train_loader: an iterator can be read only once, and training needs all of it\n"
            "  give a sample as data"
        )
    if not isinstance(loader, DataLoader):
        return first_of_batch(_first(loader))
    dataset: Any = loader.dataset  # of any kind
    is_stacked = loader.batch_sampler is not None
    if isinstance(dataset, IterableDataset):
        sample = _first(dataset)
        return (
            loader.collate_fn([sample]) if is_stacked else first_of_batch(loader.collate_fn(sample))
        )
    try:
        if not is_stacked:
            return first_of_batch(loader.collate_fn(dataset[0]))
        has_many = callable(getattr(dataset, "__getitems__", None))
        samples = dataset.__getitems__([0]) if has_many else [dataset[0]]
    except LookupError as error:
        raise DataError(
            f"train_loader: {type(dataset).__name__} has no sample 0: {error!r}\n"
            "  give a sample as data"
        ) from error
    return loader.collate_fn(samples)


def first_of_batch(batch: Batch) -> Batch:
    """The first sample of a batch, as a batch of one; values without rows stay the same."""
    size = batch_size(batch)
    return batch if size is None else _narrow(batch, size)


def first_of_columns(data: Mapping[str, Any], keys: Sequence[str]) -> list[Batch]:
    """The first sample of the columns ``keys``, or of all, each as a batch of one."""
    inputs = []
    for key in keys or data:
        if key not in data:
            raise TaskError(f"data: there is no {key!r}\n  {suggest(key, list(data))}")
        column = data[key]
        is_column = isinstance(column, list) or (isinstance(column, Tensor) and column.ndim)
        if not is_column or not len(column):
            what = "is empty" if is_column else f"is {type(column).__name__}, which has no samples"
            raise TaskError(f"data.{key}: {what}\n  give a tensor or a list of samples")
        inputs.append(column[:1])
    return inputs


def copy_batch(batch: Batch) -> Batch:
    """A copy with new tensors and containers."""
    if isinstance(batch, Tensor):
        return batch.detach().clone()
    if isinstance(batch, list | tuple) and not hasattr(batch, "_fields"):
        return type(batch)(copy_batch(item) for item in batch)
    if type(batch) is dict:
        return {key: copy_batch(item) for key, item in batch.items()}
    return copy.deepcopy(batch)


def _first(source: Any) -> Batch:  # noqa: ANN401 - anything that can be iterated over
    found = list(islice(iter(source), 1))
    if not found:
        raise DataError("train_loader: has no sample\n  give a sample as data")
    return found[0]


def _narrow(value: Batch, size: int) -> Batch:
    if isinstance(value, Tensor):
        return value[:1] if value.ndim and len(value) == size else value
    if isinstance(value, list | tuple):
        return _narrow_items(value, size)
    if type(value) is dict:
        return {key: _narrow(item, size) for key, item in value.items()}
    return _narrow_fields(value, size) if dataclasses.is_dataclass(value) else value


def _narrow_items(items: list[Batch] | tuple[Batch, ...], size: int) -> Batch:
    is_nest = any(isinstance(item, Tensor | list | tuple | Mapping) for item in items)
    if not is_nest and len(items) == size:  # such as the names of the samples
        return items[:1]
    narrow = [_narrow(item, size) for item in items]
    return type(items)(*narrow) if hasattr(items, "_fields") else type(items)(narrow)


def _narrow_fields(value: Batch, size: int) -> Batch:
    changed = copy.copy(value)
    for field in dataclasses.fields(value):
        object.__setattr__(changed, field.name, _narrow(getattr(value, field.name), size))
    return changed
