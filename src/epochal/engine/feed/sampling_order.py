"""The order of a pass over data as a function of a seed: indices and batches."""

from __future__ import annotations

import copy
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, islice
from typing import TYPE_CHECKING, Any, final

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from epochal.engine.device.seeding import derive_seed
from epochal.engine.feed.host_generators import HostGenerators, mix_seed
from epochal.engine.process.workers import iterate_loader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from epochal.engine.feed.rank_shares import RankShare
    from epochal.engine.interfaces.task import Loader

    Indices = range | list[Any]

_TORCH_SAMPLERS = (
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
_STANDARD_METHODS = {
    "__iter__",
    "__next__",
    "__len__",
    "__getattr__",
    "__getattribute__",
    "_get_iterator",
    "_auto_collation",
    "_index_sampler",
    "multiprocessing_context",
}
_END = object()


@final
@dataclass(frozen=True, slots=True)
class DataPass:
    """One pass over a loader."""

    seed: int
    """All its random numbers depend on this."""

    epoch: int | None = None
    """For ``set_epoch`` of samplers; None does not call it."""

    start: int = 0
    """The first batch to read."""

    share: RankShare | None = None
    """What this process reads of it, if several share the work."""


def find_indices(sampler: object, seed: int) -> Indices | None:
    """All indices of a pass, if the sampler is one of torch's; it is not changed."""
    if type(sampler) not in _TORCH_SAMPLERS:
        return None
    if isinstance(sampler, SequentialSampler):
        return range(len(sampler))
    generator = torch.Generator().manual_seed(seed)
    indexed: Any = copy.copy(sampler)
    indexed.generator = generator
    return list(indexed)


def draws_each_index_once(sampler: object) -> bool:
    """Whether an index occurs once in a pass, so that it can identify a sample's seed."""
    if type(sampler) is RandomSampler:
        return not sampler.replacement and sampler.num_samples <= len(sampler.data_source)
    return type(sampler) is SequentialSampler


def split_indices(
    indices: Indices, size: int | None, start: int, *, drop_last: bool
) -> Iterator[Any]:
    """Batches of indices from a position on; without a size, single indices."""
    if size is None:
        return (part[0] for part in split_indices(indices, 1, start, drop_last=False))
    end = len(indices) - len(indices) % size if drop_last else len(indices)
    return (list(indices[first : first + size]) for first in range(start * size, end, size))


def list_sample_indices(
    loader: DataLoader[Any], one_pass: DataPass, batches: range
) -> list[Any] | None:
    """The indices in some batches of a pass; None if only the user's sampler knows them."""
    sampler, size, drop_last = find_sampler(loader)
    indices = find_indices(sampler, one_pass.seed)
    if indices is None:
        return None
    parts = split_indices(indices, size, batches.start, drop_last=drop_last)
    return [[part] if size is None else part for part in islice(parts, len(batches))]


def iterate_seeded(
    source: Iterable[Any], seed: int, start: int, generators: HostGenerators, *, first: int = 0
) -> Iterator[Any]:
    """The items of a sampler or loader from ``start`` on, each read with its own seed.

    The source begins with the item ``first``; those before ``start`` are discarded.
    """
    items: Iterator[Any] | None = None
    for number in count(first):
        with generators.seeded(mix_seed(seed, number)):
            if items is None:
                items = iterate_loader(source)
            item = next(items, _END)
        if item is _END:
            return
        if number >= start:
            yield item


def set_sampler_epoch(loader: Loader, epoch: int | None) -> None:
    """Call ``set_epoch`` of samplers that have it."""
    if epoch is not None:
        for sampler in _samplers(loader):
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)


@contextmanager
def fixed_order(loader: Loader, seed: int) -> Iterator[None]:
    """Seed the order of a loader in a block; its generators are restored afterwards."""
    owners = [owner for owner in [*_samplers(loader), loader] if _can_be_given_generator(owner)]
    previous = [owner.generator for owner in owners]
    try:
        for owner in owners:
            # One each: both would draw from a shared generator.
            owner.generator = torch.Generator().manual_seed(seed)
        yield
    finally:
        for owner, generator in zip(owners, previous, strict=True):
            owner.generator = generator


def is_standard_dataloader(loader: object) -> bool:
    """Whether it is a DataLoader whose class does not replace how it reads data."""
    kinds = type(loader).__mro__
    if DataLoader not in kinds:
        return False
    added = {name for kind in kinds[: kinds.index(DataLoader)] for name in vars(kind)}
    return not added & _STANDARD_METHODS


def find_sampler(loader: DataLoader[Any]) -> tuple[object, int | None, bool]:
    """The sampler of a loader, its batch size and whether a short last batch is dropped.

    Without a batch size the sampler gives whole batches, or single indices.
    """
    batches = loader.batch_sampler
    if batches is None:
        return loader.sampler, None, False
    if type(batches) is BatchSampler and type(batches.sampler) in _TORCH_SAMPLERS:
        return batches.sampler, batches.batch_size, batches.drop_last
    return batches, None, False


def _samplers(loader: Loader) -> list[Any]:  # samplers share no type, only attributes
    batch_sampler = getattr(loader, "batch_sampler", None)
    found = (
        getattr(loader, "sampler", None),
        batch_sampler,
        getattr(batch_sampler, "sampler", None),
    )
    unique = {id(sampler): sampler for sampler in found if sampler is not None}
    return list(unique.values())


def _can_be_given_generator(owner: object) -> bool:
    generator = getattr(owner, "generator", "has none")
    return isinstance(generator, torch.Generator | None)


def derive_order_seed(seed: int, part: int | str) -> int:
    """The seed of the order of samples: of an epoch of the training, or of another split."""
    return derive_seed(seed, "order", part)


def derive_pass_seeds(one_pass: DataPass) -> tuple[int, int, int]:
    """The seeds of samples, batches and the sampler."""
    seed = one_pass.seed
    return derive_seed(seed, "sample"), derive_seed(seed, "batch"), derive_seed(seed, "sampler")
