"""Builds a DataLoader from a dataset and the options under ``data.<split>``."""

from __future__ import annotations

import inspect
import logging
import os
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal, final

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from epochal.config.bounds import AtLeast, guard
from epochal.data.batching import Batch, find_collate
from epochal.data.chain import Chain, refuse_unportable
from epochal.data.chain_loader import ChainLoader
from epochal.data.datasets import Repeated, Tensors
from epochal.data.order_pipes import Repeat, Shuffle
from epochal.data.sources import Iterated
from epochal.distributed.environment import read_rank_environment
from epochal.engine.loss.argument_routes import function_name
from epochal.errors import ConfigError, DataError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_MAX_AUTO_WORKERS = 8
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
logger = logging.getLogger(__name__)


@final
@dataclass(frozen=True, kw_only=True)
class LoaderOptions:
    """How the samples of one split become batches."""

    batch_size: Annotated[int, AtLeast(1)] | None = 32
    """Samples per batch; the last batch may have fewer. Null: the data are batches already."""

    shuffle: bool | None = None
    """Another order in every epoch, given by seed and epoch; null: only for train."""

    workers: Annotated[int, AtLeast(0)] | Literal["auto"] = 0
    """Processes that read samples ahead; 0 reads them in the training process, auto takes the
    cores that are left, at most 8."""

    repeat: Annotated[int, AtLeast(1)] = 1
    """How often each sample comes in one epoch, each time with different random numbers."""

    drop_last: bool = False
    """Drop a last batch that is not full."""

    pin_memory: bool | None = None
    """Page-locked batches, which are copied to a GPU faster; null: when training on one."""

    persistent_workers: bool | None = None
    """Keep the workers from one epoch to the next; null: only for train."""

    prefetch: Annotated[int, AtLeast(1)] | None = None
    """Batches that each worker reads ahead; null: 2."""

    collate: Literal["stack", "pad", "list"] | Callable[[list[Any]], Any] | None = None
    """Makes a batch from a list of samples; null: torch's default_collate."""

    sampler: Callable[..., Iterable[int]] | None = None
    """Chooses the indices of an epoch and their order: a class of torch such as
    WeightedRandomSampler, or one of yours; its argument data_source or dataset is the dataset."""


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
    if hasattr(dataset, f"{split}_dataloader"):
        loader: DataLoader[Any] = _read_data_module(dataset, options, split)
        return loader
    source = _as_dataset(dataset, key)
    if isinstance(source, Chain):
        return build_chain_loader(source, options, split=split, device=device)
    is_train = split == "train"
    shuffle = is_train if options.shuffle is None else options.shuffle
    persists = is_train if options.persistent_workers is None else options.persistent_workers
    if options.sampler is not None and options.shuffle:
        what, hint = "cannot be True: the sampler chooses the order", "remove `shuffle`"
        raise ConfigError(Problem(f"{key}.shuffle", what, hint=hint))
    if isinstance(source, IterableDataset):
        shuffle = _check_iterable(source, options, key)
    else:
        _check_length(source, options, key)
    on_cuda = torch.device(device).type == "cuda"
    takes_own = isinstance(source, Tensors) and options.collate is None
    workers = count_workers(options)
    source = source if options.repeat == 1 else Repeated(source, options.repeat)
    sampler = _build_sampler(options.sampler, source, key)
    return DataLoader(
        source,
        batch_size=options.batch_size,
        shuffle=shuffle if sampler is None else None,
        sampler=sampler,
        num_workers=workers,
        prefetch_factor=(options.prefetch or 2) if workers else None,
        drop_last=options.drop_last,
        pin_memory=on_cuda if options.pin_memory is None else options.pin_memory,
        persistent_workers=persists and workers > 0,
        collate_fn=Tensors.collate if takes_own else _read_collate(options),
        # A separate generator, so that the order does not depend on other random numbers.
        generator=torch.Generator(),
    )


def build_chain_loader(
    chain: Chain, options: LoaderOptions, *, split: str, device: torch.device | str
) -> ChainLoader:
    """A loader of the batches of a chain; what the options ask for is added to its pipes.

    DataError or ConfigError if the pipes and the options contradict each other.
    """
    key, is_train = f"data.{split}" if split else "data", split == "train"
    guard(options, key)
    chain = _with_options(chain, options, key, is_train=is_train)
    workers = _fit_workers(options, chain, key)
    if workers:
        refuse_unportable(chain, key)
    sizes = [pipe.size for pipe in chain.pipes if isinstance(pipe, Batch)]
    persists = is_train if options.persistent_workers is None else options.persistent_workers
    on_cuda = torch.device(device).type == "cuda"
    loader = ChainLoader(
        chain,
        batch_size=sizes[0] if sizes else None,
        num_workers=workers,
        prefetch_factor=(options.prefetch or 2) if workers else None,
        pin_memory=on_cuda if options.pin_memory is None else options.pin_memory,
        persistent_workers=persists and workers > 0,
    )
    if chain.count() == 0:
        raise DataError(f"{key}: the chain has no items\n  check the files and what is left out")
    return loader


def _with_options(chain: Chain, options: LoaderOptions, key: str, *, is_train: bool) -> Chain:
    """The chain with pipes that repeat, shuffle and batch, where it has none itself."""
    is_batched = any(pipe.makes_batches for pipe in chain.pipes)
    is_ordered = is_batched or any(pipe.sets_order for pipe in chain.pipes)
    if options.shuffle and not chain.is_indexed:
        what = "cannot be True: the chain gives a stream, which has no index to shuffle"
        hint = "remove `shuffle`, and add the pipe shuffle_buffer"
        raise ConfigError(Problem(f"{key}.shuffle", what, hint=hint))
    if options.sampler is not None:
        what = "a chain chooses the order of its items by pipes"
        hint = "remove `sampler`, and add the pipe shuffle or sample"
        raise ConfigError(Problem(f"{key}.sampler", what, hint=hint))
    if is_batched and (options.shuffle or options.collate is not None or options.repeat > 1):
        name = "shuffle" if options.shuffle else "repeat" if options.repeat > 1 else "collate"
        what, hint = "the pipes make batches already", f"write {name} as part of the pipes"
        raise ConfigError(Problem(f"{key}.{name}", what, hint=hint))
    shuffles = (is_train and not is_ordered) if options.shuffle is None else options.shuffle
    if options.repeat > 1:
        chain = chain.then(Repeat(options.repeat))
    if shuffles and chain.is_indexed and chain.count() is not None:
        chain = chain.then(Shuffle())
    if options.batch_size is None or is_batched:
        return chain
    collate = find_collate(options.collate)
    return chain.then(Batch(options.batch_size, drop_last=options.drop_last, collate=collate))


def _fit_workers(options: LoaderOptions, chain: Chain, key: str) -> int:
    """The number of workers that the chain can use."""
    workers = count_workers(options)
    if workers < 2 or chain.is_indexed:
        return workers
    if not any(pipe.splits for pipe in chain.pipes):
        if options.workers == "auto":
            return 1
        what = f"{workers} workers would each read the whole stream"
        hint = "add the pipe split_by_worker behind the source, or set workers: 1"
        raise ConfigError(Problem(f"{key}.workers", what, hint=hint))
    fitting = max(number for number in range(1, workers + 1) if chain.lanes % number == 0)
    if fitting != workers:
        logger.info(
            "%s.workers: uses %d of %d workers, because split_by_worker makes %d parts",
            key,
            fitting,
            workers,
            chain.lanes,
        )
    return fitting


def count_workers(options: LoaderOptions) -> int:
    """The number of workers; ``auto`` leaves one core to each training process of the machine."""
    if options.workers != "auto":
        return options.workers
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    place = read_rank_environment()
    share = (usable or 1) // (1 if place is None else max(place.local_world_size, 1))
    return max(min(share - 1, _MAX_AUTO_WORKERS), 0)


def _read_collate(options: LoaderOptions) -> Callable[[list[Any]], Any] | None:
    return None if options.collate is None else find_collate(options.collate)


def _build_sampler(make: Callable[..., Any] | None, dataset: object, key: str) -> Any:  # noqa: ANN401 - any iterable of indices
    """The sampler; it gets the dataset if it has an argument for one."""
    if make is None:
        return None
    arguments = inspect.signature(make).parameters
    given = {name: dataset for name in ("data_source", "dataset") if name in arguments}
    missing = [
        name
        for name, one in arguments.items()
        if one.default is one.empty and one.kind not in _VARIADIC and name not in given
    ]
    if missing:
        what = f"{function_name(make)} needs {' and '.join(map(repr, missing))}"
        hint = f"write them beside its type: {{type: ..., {missing[0]}: ...}}"
        raise ConfigError(Problem(f"{key}.sampler", what, hint=hint))
    return make(**given)


def _read_data_module(module: Any, options: LoaderOptions, split: str) -> Any:  # noqa: ANN401 - of Lightning
    """The loader of a split of a Lightning DataModule."""
    for name in ("prepare_data", "setup"):
        if hasattr(module, name):
            stage = {"train": "fit", "val": "validate"}.get(split, split)
            getattr(module, name)(*((stage,) if name == "setup" else ()))
    return _ready_loader(getattr(module, f"{split}_dataloader")(), options, f"data.{split}")


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


def _as_dataset(dataset: object, key: str) -> Dataset[Any] | Chain:
    if isinstance(dataset, Dataset | Chain):
        return dataset
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        # A list of samples works too: torch only needs these two methods.
        return dataset  # type: ignore[return-value]  # reason: duck-typed like torch itself
    if hasattr(dataset, "__iter__") and not isinstance(dataset, str | bytes | type):
        return Chain(Iterated(dataset))
    what = f"cannot read samples from a {type(dataset).__name__}"
    hint = "give a torch Dataset, or an object with __iter__, or __getitem__ and __len__"
    raise ConfigError(Problem(key, what, hint=hint))


def _check_iterable(dataset: Dataset[Any], options: LoaderOptions, key: str) -> bool:
    """Refuse options that an iterable dataset cannot have; returns False, as it never shuffles."""
    name = type(dataset).__name__
    if options.shuffle:
        what = f"cannot be True: {name} is iterable, so its samples have no index to shuffle"
        hint = "remove `shuffle` and shuffle inside the dataset, for example in a buffer"
        raise ConfigError(Problem(f"{key}.shuffle", what, hint=hint))
    if options.sampler is not None:
        what = f"{name} is iterable, so a sampler has no index to choose from"
        hint = "remove `sampler`, and choose samples inside the dataset"
        raise ConfigError(Problem(f"{key}.sampler", what, hint=hint))
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
    if options.drop_last and length * options.repeat < (options.batch_size or 1):
        raise DataError(
            f"{key}: {length} samples fill no batch of {options.batch_size}, and drop_last "
            f"leaves out the rest\n  set {key}.drop_last=false, or a smaller batch_size"
        )
