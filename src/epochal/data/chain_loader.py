"""Reads the batches of a chain, from any position and with any number of workers."""

from __future__ import annotations

import warnings
from itertools import chain as chain_iterators
from itertools import count, islice
from typing import TYPE_CHECKING, Any, NamedTuple, final

import torch.distributed
from torch.utils.data import DataLoader, Dataset
from typing_extensions import override

from epochal.data.batching import Batch as BatchPipe
from epochal.data.pipe import Pass, Pipe
from epochal.distributed.environment import read_rank_environment
from epochal.engine.feed.loaders import WORKER_OPTIONS
from epochal.engine.feed.rank_shares import SampleSlices
from epochal.engine.feed.sampling_order import DataPass
from epochal.engine.feed.seeded_dataset import identity_collate
from epochal.engine.feed.worker_data import refuse_captured_run
from epochal.engine.process.worker_reads import ReadLog
from epochal.engine.process.workers import iterate_loader, protect_workers_from_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from epochal.data.chain import Chain
    from epochal.engine.feed.rank_shares import RankShare
    from epochal.engine.interfaces.task import Batch


@final
class _Slot(NamedTuple):
    """One batch of a pass: its number, counted over all lanes in turns."""

    one_pass: Pass
    number: int


@final
class _EndOfLane(NamedTuple):
    """Given for a slot whose lane has no more batches."""

    length: int


@final
class ChainBatches(Dataset[Any]):
    """The batches of a chain by slot; a slot after the previous one of its lane is read at once."""

    draws_random = False

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self._is_indexed = chain.is_indexed
        self.log: ReadLog | None = None
        """Where workers note what they read."""

        self._reader: tuple[Pass, Callable[[int], Batch]] | None = None
        self._opened: dict[int, tuple[_Slot, Iterator[Any]]] = {}

    @override
    def __getitem__(self, slot: int | _Slot) -> Batch:
        if isinstance(slot, int):  # of a tool that looks at a sample
            return next(islice(self.chain.items(), slot, None))
        one_pass, chain = slot.one_pass, self.chain
        if self.log is not None:
            self._note(self.log, slot.number)
        if self._is_indexed:
            if self._reader is None or self._reader[0] != one_pass:
                self._reader = one_pass, chain.last.reader(one_pass)
            return self._reader[1](slot.number)
        lanes = chain.passes(one_pass)
        lane, number = slot.number % len(lanes), slot.number // len(lanes)
        expected, items = self._opened.get(lane, (None, iter(())))
        is_new = expected != slot
        if is_new:
            items = chain.last.iterate(lanes[lane], number)
        for batch in islice(items, 1):
            following = slot._replace(number=slot.number + len(lanes))
            self._opened[lane] = following, items
            return batch
        self._opened.pop(lane, None)
        if is_new and number:  # it may have ended earlier
            number = sum(1 for _ in islice(chain.last.iterate(lanes[lane]), number))
        return _EndOfLane(number)

    def _note(self, log: ReadLog, number: int) -> None:
        log.note(number)
        if self._is_indexed:
            if isinstance(Pipe.now_reading, list):
                Pipe.now_reading = log.get_items() or Pipe.now_reading
            Pipe.now_reading[0] = -1

    @override
    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_reader": None, "_opened": {}}


@final
class _Slots:
    """The slots that workers are to read, set for each pass."""

    def __init__(self) -> None:
        self.items: Iterable[Any] = ()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)


@final
class ChainLoader(DataLoader[Any]):
    """The batches of a chain; seed, epoch and position determine each of them.

    Iterated by itself, each pass is the next epoch of seed 0.
    """

    def __init__(self, chain: Chain, *, batch_size: int | None, **options: Any) -> None:  # noqa: ANN401 - of DataLoader
        chain.prepare()
        self._passes = 0
        self._inner: DataLoader[Any] | None = None
        self.read_log: ReadLog | None = None
        """What workers read, if there are any."""

        self._slots = _Slots()
        super().__init__(
            ChainBatches(chain), batch_size=batch_size, sampler=_find_sampler(chain), **options
        )
        refuse_captured_run(self)

    @property
    def chain(self) -> Chain:
        """The chain with the pipes that make batches."""
        batches: Any = self.dataset
        found: Chain = batches.chain
        return found

    @property
    def is_endless(self) -> bool:
        """Whether a pass never ends."""
        return self.chain.is_endless

    def find_division_problem(self, share: RankShare | None) -> str:
        """Why ``shard_by_rank`` cannot be used; empty if it can, or is not there."""
        chain = self.chain
        if not chain.shards:
            return ""
        if share is None or not share.splits_batches:
            return "an evaluation gives each batch to one process"
        if chain.is_indexed:
            return "a chain with an index is divided already"
        if not isinstance(chain.last, BatchPipe) or chain.last.size % share.world_size:
            return f"its last pipe makes no batches that {share.world_size} processes can divide"
        if not chain.is_endless:
            return "the stream ends, in one process earlier than in another; `repeat` would do"
        return ""

    @override
    def __len__(self) -> int:
        return len(self.chain)

    @override
    def __iter__(self) -> Any:
        epoch, self._passes = self._passes, self._passes + 1
        return self.open_pass(DataPass(epoch, epoch))

    def open_pass(self, one_pass: DataPass) -> Iterator[Batch]:
        """The batches of a pass, from its start on, or the share of this process."""
        rank, world = _find_rank()
        whole = Pass(one_pass.seed, rank=rank, world=world)
        start, share, last = one_pass.start, one_pass.share, self.chain.last
        if isinstance(share, SampleSlices) and self.chain.shards:
            own = Pass(one_pass.seed, rank=share.rank, world=share.world_size, divides_batches=True)
            return share.of_own_batches(self._take_turns(own, start))
        if not self.chain.is_indexed:
            batches = self._take_turns(whole, start)
            return batches if share is None else share.of_batches(batches)
        length = last.count(whole)
        numbers = count(start) if length is None else range(start, length)
        if share is None:
            return self._read(_Slot(whole, number) for number in numbers)
        if share.splits_batches and last.rows_of(0, whole) is None:
            return share.of_batches(self._read(_Slot(whole, number) for number in numbers))
        parts = (last.rows_of(number, whole) for number in numbers)
        return self._read(
            _Slot(whole._replace(rows=rows and (rows.start, rows.stop)), number)
            for number, _, rows in share.of_indices(parts, start)
        )

    def _take_turns(self, whole: Pass, start: int) -> Iterator[Batch]:
        """The batches of all lanes in turns, until every lane has ended."""
        lanes = self.chain.lanes
        lengths: dict[int, int] = {}
        while True:
            first = find_slot(start, lanes, lengths)
            batches = zip(
                count(first), self._read(_Slot(whole, n) for n in count(first)), strict=False
            )
            # A lane that ended before the position moves it: find the end of every lane first.
            heard = list(islice(batches, lanes if start else 0))
            known = len(lengths)
            lengths |= {n % lanes: one.length for n, one in heard if isinstance(one, _EndOfLane)}
            if len(lengths) == known or find_slot(start, lanes, lengths) == first:
                break
        for number, batch in chain_iterators(heard, batches):
            if not isinstance(batch, _EndOfLane):
                yield batch
                continue
            lengths[number % lanes] = batch.length
            if len(lengths) == lanes:
                return

    def _read(self, slots: Iterator[_Slot]) -> Iterator[Any]:
        if not self.num_workers and not self.pin_memory:
            return map(self.dataset.__getitem__, slots)
        inner = self._inner
        if inner is None or inner.num_workers != self.num_workers:
            inner = self._inner = self._build_inner()
        self._slots.items = slots
        return iterate_loader(inner)

    def _build_inner(self) -> DataLoader[Any]:
        names = WORKER_OPTIONS if self.num_workers else ()
        batches: Any = self.dataset
        self.read_log = batches.log = ReadLog(self.num_workers) if self.num_workers else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # this loader itself warned already
            inner = DataLoader(
                self.dataset,
                batch_size=None,
                sampler=self._slots,
                collate_fn=identity_collate,
                num_workers=self.num_workers,
                pin_memory=self.pin_memory,
                worker_init_fn=self.worker_init_fn,
                **{name: getattr(self, name) for name in names},
            )
        protect_workers_from_signals(inner)
        return inner


@final
class _NoSampler:
    """Stands for the sampler of a chain whose number of samples is unknown."""

    def __iter__(self) -> Iterator[int]:
        raise TypeError("a chain chooses its order itself")


def _find_sampler(chain: Chain) -> Any:  # noqa: ANN401 - a range knows its length
    """Gives a loader the number of samples, if the chain knows it."""
    pipes = [pipe for pipe in chain.pipes if pipe.makes_batches]
    samples = pipes[0].parent.count(Pass()) if pipes and chain.is_indexed else None
    return _NoSampler() if samples is None else range(samples)


def find_slot(position: int, lanes: int, lengths: dict[int, int]) -> int:
    """The first slot with ``position`` batches before it, if lanes have these lengths."""

    def batches_before(slot: int) -> int:
        rounds = (len(range(lane, slot, lanes)) for lane in range(lanes))
        return sum(min(number, lengths.get(lane, number)) for lane, number in enumerate(rounds))

    if len(lengths) == lanes and position >= sum(lengths.values()):
        return lanes * (max(lengths.values()) + 1)
    slot = position
    while batches_before(slot) < position:
        slot += position - batches_before(slot)
    return slot


def _find_rank() -> tuple[int, int]:
    """The process and their number, of torch.distributed or of its launcher."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    place = read_rank_environment()
    return (0, 1) if place is None else (place.rank, place.world_size)
