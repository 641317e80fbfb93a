"""The order of a pass over data as a function of a seed: which indices, in which batches."""

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

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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
    """One way through a loader."""

    seed: int
    """Everything random about it is a function of this."""

    epoch: int | None = None
    """What samplers are told; None tells them nothing."""

    start: int = 0
    """The first batch to read."""


def find_indices(sampler: object, seed: int) -> Indices | None:
    """All indices of a pass, if the sampler is one of torch's own; it stays as it is."""
    if type(sampler) not in _TORCH_SAMPLERS:
        return None
    if isinstance(sampler, SequentialSampler):
        return range(len(sampler))
    generator = torch.Generator().manual_seed(seed)
    indexed: Any = copy.copy(sampler)
    indexed.generator = generator
    return list(indexed)


def draws_each_index_once(sampler: object) -> bool:
    """Whether an index comes once in a pass, so that it can name a sample's random numbers."""
    if type(sampler) is RandomSampler:
        return not sampler.replacement and sampler.num_samples <= len(sampler.data_source)
    return type(sampler) is SequentialSampler


def split_indices(
    indices: Indices, size: int | None, start: int, *, drop_last: bool
) -> Iterator[Any]:
    """Batches of indices from a position on; without a size the indices one by one."""
    if size is None:
        return (part[0] for part in split_indices(indices, 1, start, drop_last=False))
    end = len(indices) - len(indices) % size if drop_last else len(indices)
    return (list(indices[first : first + size]) for first in range(start * size, end, size))


def list_sample_indices(
    loader: DataLoader[Any], one_pass: DataPass, batches: range
) -> list[Any] | None:
    """The indices of a pass in some of its batches; None if only its own sampler could tell."""
    sampler, size, drop_last = find_sampler(loader)
    indices = find_indices(sampler, one_pass.seed)
    if indices is None:
        return None
    parts = split_indices(indices, size, batches.start, drop_last=drop_last)
    return [[part] if size is None else part for part in islice(parts, len(batches))]


def iterate_seeded(
    source: Iterable[Any], seed: int, start: int, generators: HostGenerators, *, first: int = 0
) -> Iterator[Any]:
    """What a sampler or a loader gives from a position on, each item under a seed of its own.

    Args:
        source: Anything that can be iterated over.
        seed: Gives, with the position of an item, its seed.
        start: Items before this position are thrown away.
        generators: Restores the global generators after each item.
        first: Where the source itself begins.
    """
    items: Iterator[Any] | None = None
    for number in count(first):
        with generators.seeded(mix_seed(seed, number)):
            if items is None:
                items = iter(source)
            item = next(items, _END)
        if item is _END:
            return
        if number >= start:
            yield item


def set_sampler_epoch(loader: Loader, epoch: int | None) -> None:
    """Tell samplers that want to know it which epoch begins."""
    if epoch is not None:
        for sampler in _samplers(loader):
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)


@contextmanager
def fixed_order(loader: Loader, seed: int) -> Iterator[None]:
    """Order a loader by ``seed`` for a block; afterwards its generators are as before."""
    owners = [owner for owner in [*_samplers(loader), loader] if _can_be_given_generator(owner)]
    kept = [owner.generator for owner in owners]
    try:
        for owner in owners:
            # One each: a generator shared by loader and sampler would be drawn from in turns.
            owner.generator = torch.Generator().manual_seed(seed)
        yield
    finally:
        for owner, generator in zip(owners, kept, strict=True):
            owner.generator = generator


def is_standard_dataloader(loader: object) -> bool:
    """Whether it does what torch's own does: a subclass may add to it, but replace nothing."""
    kinds = type(loader).__mro__
    if DataLoader not in kinds:
        return False
    added = {name for kind in kinds[: kinds.index(DataLoader)] for name in vars(kind)}
    return not added & _STANDARD_METHODS


def find_sampler(loader: DataLoader[Any]) -> tuple[object, int | None, bool]:
    """The sampler of a loader, its batch size and whether a short last batch is left out.

    Without a batch size the sampler gives what the dataset is asked for at once.
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
    generator = getattr(owner, "generator", "none of its own")
    return isinstance(generator, torch.Generator | None)


def derive_pass_seeds(one_pass: DataPass) -> tuple[int, int, int]:
    """The seeds of samples, of batches, and of what a sampler draws."""
    seed = one_pass.seed
    return derive_seed(seed, "sample"), derive_seed(seed, "batch"), derive_seed(seed, "sampler")
