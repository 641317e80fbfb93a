"""Cross-validation: splits a dataset into folds, and builds the loaders of a fold."""

from __future__ import annotations

import copy
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
)

from epochal.data.datasets import Repeated, Tensors
from epochal.errors import ConfigError, Problem

logger = logging.getLogger(__name__)

_KEPT = ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn")
_OF_WORKERS = ("multiprocessing_context", "prefetch_factor", "persistent_workers")
_KEY = "train.folds"
_STRATIFY = "train.stratify"
Data = Any  # a dataset of any kind, or its samples


class FoldLoaders(NamedTuple):
    """The loaders of one fold."""

    train: DataLoader[Any]
    val: DataLoader[Any]


def assign_folds(
    count: int, folds: int, *, seed: int, labels: Sequence[object] | None = None
) -> list[list[int]]:
    """The indices that each fold holds out; the sizes of folds differ by at most one.

    With ``labels``, one for each sample, the counts of each label differ by at most one, too.
    """
    order: list[int] = torch.randperm(
        count, generator=torch.Generator().manual_seed(seed), device="cpu"
    ).tolist()
    if labels is not None:
        ranks = {label: rank for rank, label in enumerate(dict.fromkeys(labels))}
        order.sort(key=lambda index: ranks[labels[index]])
    return [sorted(order[first::folds]) for first in range(folds)]


def split_loader(
    loader: object, fold: int, folds: int, *, seed: int, stratify: str | int | None = None
) -> FoldLoaders:
    """The loaders of one fold: of its training samples, and of those that it holds out.

    ``loader`` has all training data and is not changed; folds count from 1. ``stratify`` says
    where the labels are: a key or a position in samples, or an attribute of the dataset.
    ConfigError if the data cannot be split into this many folds.
    """
    if not isinstance(loader, DataLoader):
        what = f"needs the training data as a DataLoader, got {_named(loader)}"
        raise ConfigError(Problem(_KEY, what, hint="wrap the dataset in a torch DataLoader"))
    dataset, times = _unrepeated(loader.dataset)
    count = _require_samples(dataset, folds)
    _require_order(loader)
    labels = None if stratify is None else get_labels(dataset, stratify)
    if labels is not None:
        _warn_of_rare(labels, folds)
    held_out = assign_folds(count, folds, seed=seed, labels=labels)[fold - 1]
    rest = sorted({*range(count)} - {*held_out})
    trained = select_samples(dataset, rest)
    train = _like(loader, trained if times == 1 else Repeated(trained, times), is_train=True)
    return FoldLoaders(train, _like(loader, select_samples(dataset, held_out), is_train=False))


def select_samples(dataset: Data, indices: list[int]) -> Data:
    """The samples at some indices; a dataset of tensors stays one, which is fastest to read."""
    if type(dataset) is TensorDataset:
        return TensorDataset(*(tensor[indices] for tensor in dataset.tensors))
    if type(dataset) is Tensors:
        chosen = copy.copy(dataset)
        chosen.tensors = tuple(tensor[indices] for tensor in dataset.tensors)
        return chosen
    return Subset(dataset, indices)


def get_labels(dataset: Data, where: str | int) -> list[object]:
    """The label of each sample, from an attribute or column of the dataset, else from samples."""
    column = _find_column(dataset, where)
    if column is None:
        column = [_read_label(dataset[index], where) for index in range(len(dataset))]
    labels = column.tolist() if hasattr(column, "tolist") else list(column)
    if len(labels) != len(dataset):
        what = f"{where!r} has {len(labels)} labels, and there are {len(dataset)} samples"
        raise ConfigError(Problem(_STRATIFY, what, hint="give one label for each sample"))
    plain = [one.item() if hasattr(one, "item") else one for one in labels]
    for label in plain:
        if isinstance(label, list | dict | set) or hasattr(label, "shape"):
            what = f"{where!r} is a {type(label).__name__}, not a single label"
            hint = "name an entry that is one number or text for each sample"
            raise ConfigError(Problem(_STRATIFY, what, hint=hint))
    return plain


def _find_column(dataset: Data, where: str | int) -> Data:
    if isinstance(dataset, Tensors) and where in dataset.names:
        return dataset.tensors[dataset.names.index(where)]
    tensors = getattr(dataset, "tensors", None)
    if isinstance(where, int) and isinstance(tensors, tuple) and -len(tensors) <= where:
        return tensors[where] if where < len(tensors) else None
    return getattr(dataset, where, None) if isinstance(where, str) else None


def _read_label(sample: Data, where: str | int) -> object:
    is_mapping = isinstance(sample, Mapping)
    try:
        found: object = sample[where] if is_mapping or isinstance(where, int) else None
        if found is not None:
            return found
    except (LookupError, TypeError):
        pass
    if isinstance(where, str) and hasattr(sample, where):
        return getattr(sample, where)
    has = f"the keys {', '.join(map(str, sample))}" if is_mapping else _named(sample)
    what = f"neither the data nor a sample has {where!r}; a sample has {has}"
    hint = "write a key or a position of the label in a sample, or an attribute of the dataset"
    raise ConfigError(Problem(_STRATIFY, what, hint=hint))


def _unrepeated(dataset: Data) -> tuple[Data, int]:
    """The dataset without repetitions, so that no sample is in both parts, and their number."""
    return (dataset.dataset, dataset.times) if isinstance(dataset, Repeated) else (dataset, 1)


def _require_samples(dataset: Data, folds: int) -> int:
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        what = f"needs data that is read by index, and {_named(dataset)} is iterable"
        raise ConfigError(Problem(_KEY, what, hint="give a dataset with __getitem__ and __len__"))
    count = len(dataset)
    if folds > count:
        what = f"{folds} folds of {count} samples: some would be empty"
        raise ConfigError(Problem(_KEY, what, hint=f"write at most {count}"))
    return count


def _require_order(loader: DataLoader[Any]) -> None:
    is_usual = type(loader.sampler) is SequentialSampler or (
        type(loader.sampler) is RandomSampler and not loader.sampler.replacement
    )
    if loader.batch_size is None or not is_usual:
        sampler = loader.sampler if loader.batch_size is not None else loader.batch_sampler
        what = f"the train_loader has a custom sampler, {_named(sampler)}, of the whole dataset"
        hint = "use shuffle=True and batch_size, or make the folds in the task"
        raise ConfigError(Problem(_KEY, what, hint=hint))


def _warn_of_rare(labels: list[object], folds: int) -> None:
    label, count = Counter(labels).most_common()[-1]
    if count < folds:
        logger.warning(
            "train.stratify: label %r has %d samples, fewer than %d folds", label, count, folds
        )


def _like(loader: DataLoader[Any], dataset: Data, *, is_train: bool) -> DataLoader[Any]:
    names = (*_KEPT, *_OF_WORKERS) if loader.num_workers else _KEPT
    options: dict[str, Any] = {name: getattr(loader, name) for name in names}
    if not is_train:
        options.pop("persistent_workers", None)
    return DataLoader(
        dataset,
        batch_size=loader.batch_size,
        shuffle=is_train and type(loader.sampler) is RandomSampler,
        drop_last=is_train and loader.drop_last,
        generator=torch.Generator(),
        **options,
    )


def _named(value: object) -> str:
    return f"a {type(value).__name__}"
