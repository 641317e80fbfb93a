"""Which samples or batches of a pass a process reads, if several share the work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from itertools import count, islice
from typing import TYPE_CHECKING, Any, ClassVar, final

from torch.utils.data.distributed import DistributedSampler
from typing_extensions import override

from epochal.engine.device.move import batch_size
from epochal.engine.feed.positioned_loader import PositionedLoader
from epochal.engine.feed.split_batch import UnsplittableError, take_rows
from epochal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from epochal.engine.interfaces.task import Batch, Loader


class RankShare(ABC):
    """The part of a pass that one process reads."""

    splits_batches: ClassVar[bool]
    """Whether it is a part of each batch."""

    rank: int
    world_size: int

    @abstractmethod
    def of_indices(self, parts: Iterable[Any], start: int) -> Iterator[tuple[int, int, Any]]:
        """This process's indices, each batch with its number and the place of its first sample.

        ``parts`` are the indices of whole batches, from the batch ``start`` on.
        """

    @abstractmethod
    def of_batches(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The part of this process in batches that were read as a whole."""

    @abstractmethod
    def limit(self, batches: int) -> int:
        """How many of the next batches this process reads."""


@final
class SampleSlices(RankShare):
    """A slice of each batch, for training: together the processes have the whole batch.

    A process that gets no sample of a small batch reads one anyway: its step has to take part in
    the reduction of gradients, with the weight 0.
    """

    splits_batches = True

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank, self.world_size = rank, world_size
        self.sizes: deque[int] = deque()
        """The samples of each whole batch that was read and not used yet."""

    def bounds(self, size: int) -> slice:
        """This process's samples in a batch of ``size``; the first processes may have one more."""
        each, more = divmod(size, self.world_size)
        first = self.rank * each + min(self.rank, more)
        end = first + each + (self.rank < more)
        return slice(first, end) if end > first else slice(0, 1)

    def is_empty(self, size: int) -> bool:
        """Whether this process has no sample in a batch of ``size``."""
        return self.rank >= size

    @override
    def of_indices(self, parts: Iterable[Any], start: int) -> Iterator[tuple[int, int, Any]]:
        for number, part in enumerate(parts, start):
            own = self.bounds(len(part))
            self.sizes.append(len(part))
            yield number, own.start, part[own]

    @override
    def of_batches(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        for batch in batches:
            size = batch_size(batch)
            if not size:
                raise DataError(
                    f"train_loader: a {type(batch).__name__} does not show how many samples it "
                    "has, so it cannot be split between processes\n"
                    "  give tensors with one row for each sample"
                )
            self.sizes.append(size)
            try:
                yield take_rows(batch, self.bounds(size))
            except UnsplittableError as error:
                raise DataError(
                    f"train_loader: a batch cannot be split between processes: {error}\n"
                    "  give tensors with one row for each sample"
                ) from error

    def of_own_batches(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Batches of equal sizes of which every process has read only its part."""
        for batch in batches:
            self.sizes.append((batch_size(batch) or 1) * self.world_size)
            yield batch

    @override
    def limit(self, batches: int) -> int:
        return batches


@final
class WholeBatches(RankShare):
    """Every n-th batch, for evaluation: each batch is computed once, as in a single process."""

    splits_batches = False

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank, self.world_size = rank, world_size

    @override
    def of_indices(self, parts: Iterable[Any], start: int) -> Iterator[tuple[int, int, Any]]:
        numbers = count(start + self.rank, self.world_size)
        own = islice(parts, self.rank, None, self.world_size)
        return ((number, 0, part) for number, part in zip(numbers, own, strict=False))

    @override
    def of_batches(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        return islice(batches, self.rank, None, self.world_size)

    @override
    def limit(self, batches: int) -> int:
        return -(-max(batches - self.rank, 0) // self.world_size)


def refuse_divided_data(loader: Loader, share: RankShare | None) -> None:
    """Refuse a loader that shares out its data itself, unless it can do so in training."""
    if isinstance(loader, PositionedLoader):
        why = loader.find_division_problem(share)
        if why:
            raise DataError(
                f"data: shard_by_rank divides the data, but {why}\n"
                "  remove it from the pipes: each process gets its samples of every batch"
            )
    owners = (loader, getattr(loader, "batch_sampler", None))
    if any(isinstance(getattr(one, "sampler", None), DistributedSampler) for one in owners):
        raise DataError(
            "data: a DistributedSampler divides the data, but Epochal already does\n"
            "  write DataLoader(dataset, batch_size=..., shuffle=True): the batch size is that of "
            "all processes together"
        )
