"""Reads each sample with its own seed, the same in every process and at any time."""

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
    from epochal.engine.process.worker_reads import ReadLog

    Collate = Callable[[Any], Batch]
    from collections.abc import Sequence

_DETERMINISTIC_TYPES = (list, tuple, range, str, Tensor, TensorDataset)
_DETERMINISTIC_COLLATES = (default_collate, default_convert)
_UNKNOWN = object()
_MIN_WATCHED_SAMPLES = 5  # seeding fewer samples is faster than watching for draws


class ReadRequest(NamedTuple):
    """Indices and seeds of a batch, sent to the process that reads it."""

    indices: Any
    """Of the samples of a batch; a single one if samples are not stacked."""

    seed: int
    """For the whole batch."""

    sample_seed: int | None
    """Combined with the index of a sample; None uses its position in the batch instead."""

    is_first: bool = False
    """Whether traits of the dataset are returned with the batch."""

    place: int = 0
    """The place of the first of these samples in the whole batch."""


class DatasetTraits(NamedTuple):
    """What reading the first batch showed about a dataset."""

    is_random: bool
    """Whether it drew from the global generators."""

    is_nondeterministic: bool
    """Whether one sample, read twice with the same seed, differed."""


def may_draw(dataset: object) -> bool:
    """Whether reading samples may draw random numbers, by the type of the dataset.

    A dataset with an attribute ``draws_random = False`` does not.
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
    """Whether making a batch of samples may draw random numbers."""
    is_own = isinstance(dataset, InMemoryDataset) and collate is type(dataset).collate
    is_still = collate in _DETERMINISTIC_COLLATES or (is_own and not may_draw(dataset))
    return not is_still and bool(getattr(collate, "draws_random", True))


@final
class SeededDataset(Dataset[Any]):
    """Reads whole batches of a dataset with seeds, and restores the global generators.

    Each sample is read with its own seed, and collated with a seed of the batch. Until the first
    draw is noticed, nothing is seeded: a batch without draws is the same with any seeds, and one
    with draws is read again.
    """

    def __init__(self, dataset: Any, collate: Collate, *, is_stacked: bool) -> None:  # noqa: ANN401 - of any kind
        self.dataset = dataset
        self.is_random = False
        """Whether a draw was noticed."""

        self._getitems = _find_getitems(dataset)
        self._collate = collate
        self._is_stacked = is_stacked
        self._draws = may_draw(dataset)
        self._collate_draws = may_collate_draw(collate, dataset)
        self.may_draw = self._draws or self._collate_draws
        """Whether dataset or collate may draw."""

        self._is_watched = self._draws and is_stacked
        self._generators = HostGenerators()
        self.log: ReadLog | None = None
        """Where workers note what they read."""

    def __getitems__(self, request: ReadRequest) -> Batch:
        """The batch of a request; with traits of the dataset if it is the first."""
        batch = self._read_watched(request)
        if batch is _UNKNOWN:
            batch = self._read_isolated(self._read_seeded, request)
        if not request.is_first:
            return batch
        is_nondeterministic = self._draws and self._read_isolated(
            self._is_nondeterministic, request
        )
        return [batch, DatasetTraits(self.is_random, is_nondeterministic)]

    def _read_watched(self, request: ReadRequest) -> Batch:
        """The batch if no draw was expected and none was noticed, else ``_UNKNOWN``."""
        if self.is_random or not self._is_watched or len(request.indices) < _MIN_WATCHED_SAMPLES:
            return _UNKNOWN
        generators = self._generators
        states = generators.begin(request.seed)
        if states is None:
            return _UNKNOWN
        try:
            batch = self.read_unseeded(request.indices)
        except BaseException as error:
            if generators.end(states) or not isinstance(error, Exception):
                raise
        else:
            if generators.end(states):
                return batch
        self.is_random = True
        return _UNKNOWN

    def _read_isolated(self, read: Callable[[ReadRequest], Any], request: ReadRequest) -> Any:  # noqa: ANN401 - of any kind
        states = self._generators.take()
        try:
            return read(request)
        finally:
            self._generators.restore(states)

    def read_unseeded(self, indices: Any) -> Batch:  # noqa: ANN401 - of any type
        """The batch of these indices, read without seeds."""
        dataset = self.dataset
        if not self._is_stacked:
            return self._collate(dataset[indices])
        many = self._getitems
        return self._collate(many(indices) if many else read_samples(dataset, indices, self.log))

    def _read_seeded(self, request: ReadRequest) -> Batch:
        samples = self._read_samples(request)
        if self._collate_draws:
            seed_host_generators(mix_seed(request.seed, 1))
        return self._collate(samples)

    def _read_samples(self, request: ReadRequest) -> Any:  # noqa: ANN401 - of any type
        indices = request.indices
        if not self._is_stacked:
            return self._read_sample(request, indices, 0)
        many = self._getitems
        if many:
            seed_host_generators(mix_seed(request.seed, 0))
            return many(indices)
        places = enumerate(indices, request.place)
        return [self._read_sample(request, index, place) for place, index in places]

    def _read_sample(self, request: ReadRequest, index: Any, place: int) -> Any:  # noqa: ANN401 - same
        if self._draws:
            base = request.sample_seed
            seed_host_generators(
                mix_seed(request.seed, place + 2) if base is None else mix_seed(base, index)
            )
        return read_samples(self.dataset, (index,), self.log)[0]

    def _is_nondeterministic(self, request: ReadRequest) -> bool:
        with suppress(Exception):  # only the batch itself has to be readable
            one = (
                request._replace(indices=list(request.indices)[:1]) if self._is_stacked else request
            )
            return not are_bitwise_equal(self._read_samples(one), self._read_samples(one))
        return False


def read_samples(dataset: Any, indices: Any, log: ReadLog | None) -> list[Any]:  # noqa: ANN401 - of any kind
    """The samples at some indices; an error gets a note with the index that raised it."""
    samples, index = [], None
    try:
        for index in indices:
            if log is not None:
                log.note(index)
            samples.append(dataset[index])
    except Exception as error:
        error.add_note(f"data: while reading sample {index!r} of {type(dataset).__name__}")
        raise
    return samples


def _find_getitems(dataset: Any) -> Callable[[Any], Any] | None:  # noqa: ANN401 - of any kind
    """``__getitems__`` of a dataset, if it does more than read single samples."""
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
    """Calls the user's ``worker_init_fn``, if any, with the user's dataset in the worker info."""

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
    """The batch unchanged: ``SeededDataset`` collates."""
    return batch


def are_bitwise_equal(one: Any, other: Any) -> bool:  # noqa: ANN401 - samples are of any kind
    """Whether nested values are equal; objects of unknown types count as equal."""
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
    """The items of a container, with its keys; None for other values."""
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
