"""Samples read under seeds of their own, whoever reads them, whenever and in which process."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    ConcatDataset,
    Dataset,
    StackDataset,
    Subset,
    TensorDataset,
    default_collate,
    default_convert,
    get_worker_info,
)

from epochal.engine.feed.host_generators import HostGenerators, mix_seed, seed_host_generators
from epochal.engine.feed.in_memory import InMemoryDataset

if TYPE_CHECKING:
    from collections.abc import Callable

    from epochal.engine.interfaces.task import Batch

    Collate = Callable[[Any], Batch]
    from collections.abc import Sequence


_DETERMINISTIC_TYPES = (list, tuple, range, str, Tensor, TensorDataset)
_DETERMINISTIC_COLLATES = (default_collate, default_convert)
_UNKNOWN = object()
_MIN_WATCHED_SAMPLES = 5  # samples that are seeded sooner than it is seen whether they need to be


class ReadRequest(NamedTuple):
    """What is to be read, and under which seeds; goes to the process that reads it."""

    indices: Any
    """Of the samples of a batch; a single one if nothing is stacked."""

    seed: int
    """Of what is done with the whole batch."""

    sample_seed: int | None
    """Gives, with its index, the seed of a sample; None: its place in the batch gives it."""

    is_first: bool = False
    """Whether what can be found out about the dataset comes back with the batch."""


class DatasetTraits(NamedTuple):
    """What reading a first batch shows about a dataset."""

    is_random: bool
    """Whether it drew from the generators that everybody draws from."""

    is_nondeterministic: bool
    """Whether two readings of one sample differ under the same seed."""


def may_draw(dataset: object) -> bool:
    """Whether reading samples may draw random numbers, as far as the dataset's kind says.

    A dataset says itself that it does not by an attribute ``draws_random = False``.
    """
    kind = type(dataset)
    if kind in _DETERMINISTIC_TYPES or InMemoryDataset in kind.__bases__:
        return False
    if isinstance(dataset, Subset) and kind is Subset:
        return may_draw(dataset.dataset)
    if isinstance(dataset, ConcatDataset) and kind is ConcatDataset:
        return any(map(may_draw, dataset.datasets))
    if isinstance(dataset, StackDataset) and kind is StackDataset:
        parts: Any = dataset.datasets  # by position or by name
        return any(map(may_draw, parts.values() if isinstance(parts, dict) else parts))
    return bool(getattr(dataset, "draws_random", True))


def may_collate_draw(collate: object, dataset: object) -> bool:
    """The same for making a batch of samples."""
    is_own = isinstance(dataset, InMemoryDataset) and collate is type(dataset).collate
    is_still = collate in _DETERMINISTIC_COLLATES or (is_own and not may_draw(dataset))
    return not is_still and bool(getattr(collate, "draws_random", True))


@final
class SeededDataset(Dataset[Any]):
    """Stands for a dataset and makes whole batches; draws nothing that others would miss.

    Each sample is read under generators that were seeded for it, and what concerns a whole batch
    under a seed of the batch. Until a first draw is noticed nothing is seeded that need not be:
    a batch during whose reading no generator moved is the same under any seeds, another one
    is read again.

    Args:
        dataset: Any that is asked by index.
        collate: Makes a batch of samples, or changes a single one.
        is_stacked: Whether batches consist of several samples.
    """

    def __init__(self, dataset: Any, collate: Collate, *, is_stacked: bool) -> None:  # noqa: ANN401 - of any kind
        self.dataset = dataset
        self.is_random = False
        """Whether it is known to draw."""

        self._getitems = _find_getitems(dataset)
        self._collate = collate
        self._is_stacked = is_stacked
        self._draws = may_draw(dataset)
        self._collate_draws = may_collate_draw(collate, dataset)
        self.may_draw = self._draws or self._collate_draws
        """Whether it is unknown that nobody draws."""

        self._is_watched = self._draws and is_stacked
        self._generators = HostGenerators()

    def __getitems__(self, ticket: ReadRequest) -> Batch:
        """The batch of a ticket; that of a first one in a list together with findings."""
        batch = self._read_watched(ticket)
        if batch is _UNKNOWN:
            batch = self._read_isolated(self._read_seeded, ticket)
        if not ticket.is_first:
            return batch
        is_nondeterministic = self._draws and self._read_isolated(self._is_nondeterministic, ticket)
        return [batch, DatasetTraits(self.is_random, is_nondeterministic)]

    def _read_watched(self, ticket: ReadRequest) -> Batch:
        """The batch if nobody draws, as far as that is likely."""
        if self.is_random or not self._is_watched or len(ticket.indices) < _MIN_WATCHED_SAMPLES:
            return _UNKNOWN
        generators = self._generators
        states = generators.begin(ticket.seed)
        if states is None:
            return _UNKNOWN
        try:
            batch = self.read_unseeded(ticket.indices)
        except BaseException as error:
            if generators.end(states) or not isinstance(error, Exception):
                raise
        else:
            if generators.end(states):
                return batch
        self.is_random = True
        return _UNKNOWN

    def _read_isolated(self, read: Callable[[ReadRequest], Any], ticket: ReadRequest) -> Any:  # noqa: ANN401 - of any kind
        states = self._generators.take()
        try:
            return read(ticket)
        finally:
            self._generators.restore(states)

    def read_unseeded(self, indices: Any) -> Batch:  # noqa: ANN401 - samplers give what they like
        """The batch of some indices, or of a single one if nothing is stacked, without seeds."""
        dataset = self.dataset
        if not self._is_stacked:
            return self._collate(dataset[indices])
        many = self._getitems
        return self._collate(many(indices) if many else [dataset[index] for index in indices])

    def _read_seeded(self, ticket: ReadRequest) -> Batch:
        samples = self._read_samples(ticket)
        if self._collate_draws:
            seed_host_generators(mix_seed(ticket.seed, 1))
        return self._collate(samples)

    def _read_samples(self, ticket: ReadRequest) -> Any:  # noqa: ANN401 - the dataset gives what it likes
        indices = ticket.indices
        if not self._is_stacked:
            return self._read_sample(ticket, indices, 0)
        many = self._getitems
        if many:
            seed_host_generators(mix_seed(ticket.seed, 0))
            return many(indices)
        return [self._read_sample(ticket, index, place) for place, index in enumerate(indices)]

    def _read_sample(self, ticket: ReadRequest, index: Any, place: int) -> Any:  # noqa: ANN401 - same
        if self._draws:
            base = ticket.sample_seed
            seed_host_generators(
                mix_seed(ticket.seed, place + 2) if base is None else mix_seed(base, index)
            )
        return self.dataset[index]

    def _is_nondeterministic(self, ticket: ReadRequest) -> bool:
        with suppress(Exception):  # the batch itself could be read: that is all that counts
            one = ticket._replace(indices=list(ticket.indices)[:1]) if self._is_stacked else ticket
            return not are_bitwise_equal(self._read_samples(one), self._read_samples(one))
        return False


def _find_getitems(dataset: Any) -> Callable[[Any], Any] | None:  # noqa: ANN401 - of any kind
    """What reads several samples at once, where that is more than reading one after the other."""
    parts: list[Any] = []
    if type(dataset) is Subset:
        parts = [dataset.dataset]
    elif type(dataset) is StackDataset:
        held: Any = dataset.datasets
        parts = list(held.values() if isinstance(held, dict) else held)
    if parts and not any(map(_find_getitems, parts)):
        return None
    return getattr(dataset, "__getitems__", None)


@final
class WorkerInit:
    """What a worker does first: the user's function, which finds the dataset that it knows.

    Args:
        function: Takes the worker's number; None does nothing.
    """

    def __init__(self, function: Callable[[int], object] | None) -> None:
        self._function = function

    def __call__(self, number: int) -> None:
        """Called in the worker."""
        info = get_worker_info()
        if info is not None and isinstance(info.dataset, SeededDataset):
            object.__setattr__(info, "dataset", info.dataset.dataset)  # frozen, but ours
        if self._function is not None:
            self._function(number)


def identity_collate(batch: Batch) -> Batch:
    """What a loader makes of what a reader gives."""
    return batch


def are_bitwise_equal(one: Any, other: Any) -> bool:  # noqa: ANN401 - samples are of any kind
    """Whether two nests of values are equal; objects of unknown kinds count as equal."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor):
        return _are_tensors_equal(one, other)
    if isinstance(one, np.ndarray | np.generic):
        return _are_arrays_equal(np.asarray(one), np.asarray(other))
    items = _items(one)
    return (
        _are_values_equal(one, other) if items is None else _are_items_equal(items, _items(other))
    )


def _items(value: Any) -> list[Any] | None:  # noqa: ANN401 - same
    """What a container holds, its keys included; None for what is none."""
    if isinstance(value, Mapping):
        return [list(value), list(value.values())]
    if isinstance(value, list | tuple):
        return list(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    return None


def _are_items_equal(one: Sequence[Any], other: Sequence[Any] | None) -> bool:
    return other is not None and len(one) == len(other) and all(map(are_bitwise_equal, one, other))


def _are_tensors_equal(one: Tensor, other: Tensor) -> bool:
    if (one.dtype, one.shape, one.layout) != (other.dtype, other.shape, other.layout):
        return False
    if one.layout != torch.strided:
        return True
    return _bits(one).equal(_bits(other))


def _bits(tensor: Tensor) -> Tensor:
    """So that NaN equals itself."""
    return tensor.detach().resolve_conj().resolve_neg().reshape(-1).contiguous().view(torch.uint8)


def _are_arrays_equal(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    if one.dtype.hasobject:
        return _are_items_equal(one.ravel().tolist(), other.ravel().tolist())
    return one.tobytes() == other.tobytes()


def _are_values_equal(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return struct.pack("d", one) == struct.pack("d", other)
    if isinstance(one, bool | int | str | bytes | complex | None):
        return one == other
    return True
