"""Builds a DataLoader from a dataset and the options under ``data.<split>``."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, final

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from epochal.components.data.datasets import Repeated, Tensors
from epochal.config.bounds import AtLeast, guard
from epochal.errors import ConfigError, DataError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable


@final
@dataclass(frozen=True, kw_only=True)
class LoaderOptions:
    """How the samples of one split become batches."""

    batch_size: Annotated[int, AtLeast(1)] = 32
    """Samples per batch; the last batch may have fewer."""

    shuffle: bool | None = None
    """Another order in every epoch, given by seed and epoch; null: only for train."""

    workers: Annotated[int, AtLeast(0)] = 0
    """Processes that read samples ahead; 0 reads them in the training process."""

    repeat: Annotated[int, AtLeast(1)] = 1
    """How often each sample comes in one epoch, each time with different random numbers."""

    drop_last: bool = False
    """Drop a last batch that is not full."""

    pin_memory: bool | None = None
    """Page-locked batches, which are copied to a GPU faster; null: when training on one."""

    persistent_workers: bool | None = None
    """Keep the workers from one epoch to the next; null: only for train."""

    collate: Callable[[list[Any]], Any] | None = None
    """Makes a batch from a list of samples; null: torch's default_collate."""


def build_loader(
    dataset: object, options: LoaderOptions, *, split: str, device: torch.device | str
) -> DataLoader[Any]:
    """A loader of ``dataset`` for ``split``; a ``dataset`` that is a loader is returned as is.

    ConfigError if the options contradict the dataset; DataError if there would be no batches.
    """
    key = f"data.{split}"
    if isinstance(dataset, DataLoader):
        return _ready_loader(dataset, options, key)
    guard(options, key)
    source = _as_dataset(dataset, key)
    is_train = split == "train"
    shuffle = is_train if options.shuffle is None else options.shuffle
    persists = is_train if options.persistent_workers is None else options.persistent_workers
    if isinstance(source, IterableDataset):
        shuffle = _check_iterable(source, options, key)
    else:
        _check_length(source, options, key)
    on_cuda = torch.device(device).type == "cuda"
    takes_own = isinstance(source, Tensors) and options.collate is None
    return DataLoader(
        source if options.repeat == 1 else Repeated(source, options.repeat),
        batch_size=options.batch_size,
        shuffle=shuffle,
        num_workers=options.workers,
        drop_last=options.drop_last,
        pin_memory=on_cuda if options.pin_memory is None else options.pin_memory,
        persistent_workers=persists and options.workers > 0,
        collate_fn=Tensors.collate if takes_own else options.collate,
        # A separate generator, so that the order does not depend on other random numbers.
        generator=torch.Generator(),
    )


def _ready_loader(loader: DataLoader[Any], options: LoaderOptions, key: str) -> DataLoader[Any]:
    changed = [
        field.name for field in fields(options) if getattr(options, field.name) != field.default
    ]
    if changed:
        value = getattr(options, changed[0])
        what = f"cannot be {value!r}: {key} builds a loader, not a dataset"
        hint = f"remove {', '.join(changed)} here, or return a dataset"
        raise ConfigError(Problem(f"{key}.{changed[0]}", what, hint=hint))
    return loader


def _as_dataset(dataset: object, key: str) -> Dataset[Any]:
    if isinstance(dataset, Dataset):
        return dataset
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        # A list of samples works too: torch only needs these two methods.
        return dataset  # type: ignore[return-value]  # reason: duck-typed like torch itself
    what = f"cannot read samples from a {type(dataset).__name__}"
    hint = "give a torch Dataset, or an object with __getitem__ and __len__"
    raise ConfigError(Problem(key, what, hint=hint))


def _check_iterable(dataset: Dataset[Any], options: LoaderOptions, key: str) -> bool:
    """Refuse options that an iterable dataset cannot have; returns False, as it never shuffles."""
    name = type(dataset).__name__
    if options.shuffle:
        what = f"cannot be True: {name} is iterable, so its samples have no index to shuffle"
        hint = "remove `shuffle` and shuffle inside the dataset, for example in a buffer"
        raise ConfigError(Problem(f"{key}.shuffle", what, hint=hint))
    if options.repeat > 1:
        what = f"cannot be {options.repeat}: {name} is iterable, so its samples have no index"
        hint = "remove `repeat`, and repeat samples inside the dataset"
        raise ConfigError(Problem(f"{key}.repeat", what, hint=hint))
    return False


def _check_length(dataset: Dataset[Any], options: LoaderOptions, key: str) -> None:
    if not hasattr(dataset, "__len__"):
        what = f"{type(dataset).__name__} has no __len__"
        hint = "add `__len__`, or make it a torch IterableDataset"
        raise ConfigError(Problem(key, what, hint=hint))
    length = len(dataset)
    if length == 0:
        raise DataError(
            f"{key}: the dataset {type(dataset).__name__} is empty\n"
            "  check the folder or the filter that it reads"
        )
    if options.drop_last and length * options.repeat < options.batch_size:
        raise DataError(
            f"{key}: {length} samples fill no batch of {options.batch_size}, and drop_last "
            f"leaves out the rest\n  set {key}.drop_last=false, or a smaller batch_size"
        )
