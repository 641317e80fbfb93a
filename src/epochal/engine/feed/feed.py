"""Reads loaders in a reproducible order and groups their batches into steps."""

from __future__ import annotations

import errno
import logging
import math
import re
import traceback
from collections.abc import Iterator, Mapping, Sized
from contextlib import contextmanager
from itertools import islice
from time import perf_counter
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, NamedTuple, final

from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from epochal.engine.device.move import BatchMover, MoveBatch, batch_size, keep_batch
from epochal.engine.feed.batch_spec import checked_batches
from epochal.engine.feed.in_memory import InMemoryLoaders
from epochal.engine.feed.loaders import (
    IndexedLoaders,
    IterableLoaders,
    StatefulBatches,
    find_stateful_owner,
)
from epochal.engine.feed.positioned_loader import PositionedLoader
from epochal.engine.feed.prefetch import CudaPrefetcher
from epochal.engine.feed.rank_shares import SampleSlices, refuse_divided_data
from epochal.engine.feed.sampling_order import (
    DataPass,
    derive_order_seed,
    list_sample_indices,
    set_sampler_epoch,
)
from epochal.engine.feed.static_inputs import StaticInputs
from epochal.engine.interfaces.splits import SPLITS
from epochal.errors import DataError, WorkerDiedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from epochal.engine.interfaces.task import Batch, Loader
    from epochal.engine.process.worker_reads import ReadLog

    FindLog = Callable[[Loader], ReadLog | None]
    OpenLoader = Callable[[Loader, int | None], Iterator[Batch]]

logger = logging.getLogger(__name__)

Microbatches = tuple["Batch", ...]
_UNEVEN_MESSAGES = ("stack expects each tensor to be equal size", "batch should be of equal size")
_COLLATE_FILES = ("torch/utils/data/_utils/collate.py", "epochal/data/batching.py")
_WORKER_DEATH = re.compile(r"DataLoader worker \(pid")


class _ResumePosition(NamedTuple):
    """Where an interrupted epoch continues."""

    epoch: int = -1
    position: int = 0
    loader: dict[str, Any] | None = None


@final
class Feed:
    """The training loader as steps, whose batches depend on seed, epoch and position only.

    The loader is read from the task in each epoch, so a task may replace it. Batches are read
    with separate random generators, so prefetching changes nothing.

    Args:
        task: Has the ``train_loader``.
        seed: Seed of the run.
        accumulate: Batches per step; the last step of an epoch may have fewer.
        limit: Most batches to read per epoch.
        move: Moves batches to the device. For CUDA the feed calls it too, one batch ahead of the
            consumer.
        ranks: The rank of this process and the number of processes, if several share each batch.
    """

    def __init__(
        self,
        task: object,
        *,
        seed: int,
        accumulate: int,
        limit: int | None,
        move: MoveBatch = keep_batch,
        ranks: tuple[int, int] | None = None,
    ) -> None:
        self.task = task
        """Has the loader; a replaced task counts from the next epoch on."""

        self._seed = seed
        self._ranks = ranks
        self.rows: tuple[int, ...] = ()
        """The samples of each batch of the step in all processes, if several share them."""

        self.accumulate = accumulate
        """Batches per step; a change counts from the next time that the loader is opened."""

        self.limit = limit
        """Most batches to read per epoch."""

        self.move = move
        """Moves a batch to the device, except for objects that the feed has moved."""

        self._per_step = accumulate  # of the latest steps
        self._is_interrupted = False
        is_ahead = isinstance(move, BatchMover) and move.device.type == "cuda"
        self._prefetcher = (
            CudaPrefetcher(move) if is_ahead and isinstance(move, BatchMover) else None
        )
        self._in_memory_loaders = InMemoryLoaders(move, is_pinned=is_ahead)
        self._indexed_loaders = IndexedLoaders()
        self._iterable_loaders = IterableLoaders()
        self._checked_loaders = set[int]()  # ids
        self._resume = _ResumePosition()
        self._stateful: StatefulBatches | None = None
        self.static_inputs = StaticInputs()
        """Where training batches of data on the device are gathered."""

        self.position = 0
        """Index in the epoch of the first batch of the step."""

        self.next_position = 0
        """Index in the epoch of the next batch."""

        self.samples = 0
        """Samples of all steps since the run started."""

        self.wait_seconds = 0.0
        """Time spent waiting for data since the run started."""

        self.first_wait_seconds = 0.0
        """The part of it before the first step."""

        self.is_complete = False
        """Whether the epoch's last batch was read, if the loader has a length."""

    @property
    def loader(self) -> Loader:
        """The training loader."""
        loaders = require_loaders(self.task, "train")
        if list(loaders) != [""]:
            raise DataError(
                f"train_loader: training takes one loader, got {sorted(loaders)}\n"
                "  join the datasets, for example with torch.utils.data.ConcatDataset"
            )
        return loaders[""]

    def start_at(
        self, epoch: int, position: int, samples: int, *, loader: dict[str, Any] | None = None
    ) -> None:
        """Continue an epoch at a position; other epochs start with their first batch.

        ``samples`` counts those of all steps since the run started; ``loader`` is what
        ``loader_state`` returned there.
        """
        self._resume = _ResumePosition(epoch, position, loader)
        self._stateful = None
        self.position = self.next_position = position
        self.samples = samples
        self.is_complete = 0 < position == count_batches(self.loader, self.limit)

    def interrupt(self) -> None:
        """End the steps after the current one; ``epoch`` continues from there."""
        self._is_interrupted = True

    def loader_state(self) -> dict[str, Any] | None:
        """The ``state_dict`` of a loader or dataset that has one; None if it is not needed.

        Loaders whose batches can be read by position do not need it.
        """
        if self._resume.loader is not None:
            return self._resume.loader  # nothing was read since then
        if self._stateful is not None:
            is_over = self.limit is not None and self.next_position >= self.limit
            return self._stateful.state(is_over=is_over)
        loader = self.loader
        owner = None if self._is_addressable(loader) else find_stateful_owner(loader)
        return None if owner is None else {"owner": owner.state_dict(), "is_over": False}

    def epoch(self, number: int) -> Iterator[Microbatches]:
        """The steps of one epoch, counted from 0; the last one may be short."""
        if self._ranks is None:
            return self._epoch(number)
        return self._shared_epoch(number, SampleSlices(*self._ranks))

    def _shared_epoch(self, number: int, share: SampleSlices) -> Iterator[Microbatches]:
        """The own part of each step; positions and samples are those of all processes."""
        before = self.samples
        for microbatches in self._epoch(number, share):
            self.rows = tuple([share.sizes.popleft() for _ in microbatches])
            before = self.samples = before + sum(self.rows)
            yield microbatches

    def _epoch(self, number: int, share: SampleSlices | None = None) -> Iterator[Microbatches]:
        loader = self.loader
        resume, self._resume = self._resume, _ResumePosition()
        read, state = (resume.position, resume.loader) if resume.epoch == number else (0, None)
        known = count_batches(loader, self.limit)
        accumulate = self._per_step = self.accumulate
        self.position = self.next_position = read
        self._is_interrupted, self.is_complete = False, 0 < read == known
        if self.is_complete:
            return
        one_pass = DataPass(derive_order_seed(self._seed, number), number, read, share)
        self._stateful, is_first = None, not self.wait_seconds
        with explaining_errors(loader, "train_loader", self.find_read_log):
            batches = self.open(
                loader,
                self.limit,
                one_pass,
                static_inputs=None if share else self._find_static_inputs(accumulate),
                state=state,
            )
            while True:
                begun = perf_counter()
                microbatches = tuple(islice(batches, accumulate))
                self.wait_seconds += perf_counter() - begun
                if is_first:
                    is_first, self.first_wait_seconds = False, self.wait_seconds
                if not microbatches:
                    break
                self.position = read
                read += len(microbatches)
                for position, batch in enumerate(microbatches, self.position):
                    kind, first = type(batch), batch
                    if kind is list or kind is tuple:
                        first = batch[0] if batch else None
                    elif kind is dict:
                        first = next(iter(batch.values()), None)
                    # Common batches are counted inline, without a call.
                    if type(first) is Tensor and first.ndim:
                        self.samples += first.shape[0]
                    else:
                        self.samples += batch_size(batch) or _count_samples_at(loader, position)
                self.next_position, self.is_complete = read, read == known
                yield microbatches
                if self._is_interrupted:
                    self._resume = _ResumePosition(number, read, self.loader_state())
                    return
        self._stateful = None
        _require_batches(read, loader, "train_loader")
        self.is_complete = True

    def _find_static_inputs(self, accumulate: int) -> StaticInputs | None:
        """The static inputs if a step takes one batch; otherwise their data are released."""
        if accumulate == 1:
            return self.static_inputs
        self.static_inputs.release_data()
        return None

    def open(
        self,
        loader: Loader,
        limit: int | None,
        one_pass: DataPass,
        *,
        static_inputs: StaticInputs | None = None,
        state: dict[str, Any] | None = None,
    ) -> Iterator[Batch]:
        """A pass over any loader, gathered from memory and prefetched where possible.

        It ends at the position ``limit``; a stateful loader starts with ``state``. Of the loader,
        only the epoch of its samplers is changed.
        """
        if self._ranks is not None:
            refuse_divided_data(loader, one_pass.share)
        set_sampler_epoch(loader, one_pass.epoch)
        gathered = (
            None
            if isinstance(loader, PositionedLoader)
            else self._in_memory_loaders.find(loader, one_pass, static_inputs)
        )
        can_be_ahead = self._prefetcher is not None
        batches: Iterator[Batch]
        if gathered is not None:
            batches, can_be_ahead = gathered.batches, can_be_ahead and not gathered.is_moved
        elif isinstance(loader, PositionedLoader):
            batches = loader.open_pass(one_pass)
        elif (indexed := self._indexed_loaders.find(loader)) is not None:
            batches = indexed.open(one_pass)
        else:
            batches = self._iterable_loaders.open(loader, one_pass, state)
            if isinstance(batches, StatefulBatches):
                can_be_ahead = False  # with prefetching, its state would be one batch ahead
                self._stateful = batches if one_pass.epoch is not None else self._stateful
            if one_pass.share is not None:
                batches = one_pass.share.of_batches(batches)
        if limit is not None:
            limit = max(limit - one_pass.start, 0)
            limit = limit if one_pass.share is None else one_pass.share.limit(limit)
        batches = self._check_first(loader, islice(batches, limit))
        return (
            self._prefetcher(batches) if can_be_ahead and self._prefetcher is not None else batches
        )

    def _check_first(self, loader: Loader, batches: Iterator[Batch]) -> Iterator[Batch]:
        """The batches; the first one that a run reads of a loader must fit ``task.batch_spec``."""
        spec = getattr(self.task, "batch_spec", None)
        if spec is None or id(loader) in self._checked_loaders:
            return batches
        names = (
            (split, f"{split}_loader{name and f' {name!r}'}")
            for split in SPLITS
            for name, one in named_loaders(self.task, split).items()
            if one is loader
        )
        split, label = next(names, ("", "loader"))
        self._checked_loaders.add(id(loader))
        return checked_batches(batches, spec, label, may_lack=split == "predict")

    def latest_steps(self, count: int) -> list[range]:
        """The batches of the latest steps, as ranges of positions, the last step first."""
        firsts = [self.position - back * self._per_step for back in range(count)]
        ends = [self.next_position, *firsts]
        return [range(first, end) for first, end in zip(firsts, ends, strict=False)]

    def samples_at(self, epoch: int, batches: range) -> list[list[Any]] | None:
        """The indices of the samples in some batches of an epoch; None if there are no indices.

        They are computed from seed and epoch.
        """
        loader = self.loader
        if not isinstance(loader, DataLoader) or not self._is_addressable(loader):
            return None
        return list_sample_indices(
            loader, DataPass(derive_order_seed(self._seed, epoch), epoch), batches
        )

    def find_read_log(self, loader: Loader) -> ReadLog | None:
        """What the workers of a loader read, if it has any and was opened."""
        if isinstance(loader, PositionedLoader):
            return loader.read_log
        return self._indexed_loaders.find_log(loader)

    def _is_addressable(self, loader: Loader) -> bool:
        """Whether batches can be read by position."""
        return (
            isinstance(loader, PositionedLoader)
            or self._in_memory_loaders.can_gather(loader)
            or self._indexed_loaders.find(loader) is not None
        )

    @property
    def steps_per_epoch(self) -> int | None:
        """Optimizer steps in an epoch, if the loader knows its length."""
        batches = count_batches(self.loader, self.limit)
        return None if batches is None else math.ceil(batches / self.accumulate)

    @property
    def samples_per_epoch(self) -> int | None:
        """Samples in an epoch, if the loader knows its length and batch size."""
        loader = self.loader
        batches, samples = count_batches(loader, self.limit), count_samples(loader)
        size = getattr(loader, "batch_size", None)
        if batches is None or samples is None or not isinstance(size, int):
            return None
        return min(samples, batches * size)

    @property
    def samples_per_step(self) -> int | None:
        """The most samples one step can have, if the loader knows its batch size."""
        size = getattr(self.loader, "batch_size", None)
        return size * self.accumulate if isinstance(size, int) else None


def read_task_attribute(task: object, name: str) -> object:
    """An attribute of a task, or None if it has none; errors of its property propagate."""
    try:
        return getattr(task, name)
    except AttributeError:
        if hasattr(type(task), name):
            raise
        return None


def named_loaders(task: object, split: str) -> dict[str, Loader]:
    """The loaders of a split by name; a single one has the empty name."""
    loader: Any = read_task_attribute(task, f"{split}_loader")  # a loader or several of them
    if loader is None:
        return {}
    loaders = dict(loader) if isinstance(loader, Mapping) else {"": loader}
    for name, one in loaders.items():
        _require_iterable(one, f"{split}_loader[{name!r}]" if name else f"{split}_loader")
    return loaders


def require_loaders(task: object, split: str) -> dict[str, Loader]:
    """The loaders of a split by name, at least one; a prediction may use those of ``test``."""
    loaders = named_loaders(task, split)
    if not loaders and split == "predict":
        loaders = named_loaders(task, "test")
    if not loaders:
        raise DataError(
            f"{split}_loader: the task has none\n"
            f"  set self.{split}_loader in the task, or write data.{split} in the config"
        )
    return loaders


def _require_iterable(loader: object, label: str) -> None:
    is_huggingface = type(loader).__module__.startswith("datasets.")  # iterable, but of samples
    is_iterable = hasattr(loader, "__iter__") and not is_huggingface
    if is_iterable and not isinstance(loader, str | bytes | type):
        return
    kind = type(loader).__name__
    if hasattr(loader, "__getitem__") and not isinstance(loader, str | bytes | type):
        what = f"{kind} is a dataset, which gives samples, not batches"
    else:
        what = f"{loader!r} gives no batches"
    raise DataError(
        f"{label}: {what}\n  wrap the dataset: torch.utils.data.DataLoader(dataset, batch_size=32)"
    )


MAX_UNKNOWN_BATCHES = 100_000
"""Batches of an evaluation after which data without a length count as endless."""


def iter_batches(
    loader: Loader,
    label: str,
    limit: int | None,
    *,
    open_loader: OpenLoader = islice,
    find_log: FindLog | None = None,
    may_be_empty: bool = False,
    must_end: bool = False,
) -> Iterator[Batch]:
    """The batches of a loader, at least one unless it ``may_be_empty``.

    A loader that ``must_end`` and has neither a length nor a limit is refused after
    ``MAX_UNKNOWN_BATCHES``. Exceptions of a dataset itself pass untouched.
    """
    read, is_unknown = 0, must_end and limit is None and count_batches(loader, None) is None
    doubtful = MAX_UNKNOWN_BATCHES // 10 if is_unknown else -1
    if limit is None:
        refuse_endless(loader, label)
    with explaining_errors(loader, label, find_log):
        for batch in open_loader(loader, limit):
            read += 1
            yield batch
            if read == doubtful:
                doubtful = _check_endless(read, label)
    if not may_be_empty:
        _require_batches(read, loader, label)


def refuse_endless(loader: Loader, label: str) -> None:
    """DataError if it is known that a pass over a loader never ends."""
    if getattr(loader, "is_endless", False):
        raise DataError(
            f"{label}: its data never end\n"
            "  set train.limit_eval_batches, or give the pipe repeat a number"
        )


def _check_endless(read: int, label: str) -> int:
    """Warn of a loader without a length, then refuse it; returns when to look again."""
    hint = "set train.limit_eval_batches, or give it a __len__"
    if read >= MAX_UNKNOWN_BATCHES:
        what = f"{label}: has no length, and its data have not ended after {read:,} batches"
        raise DataError(f"{what}\n  {hint}")
    logger.warning("%s: %s batches and no length; if it never ends, %s", label, f"{read:,}", hint)
    return MAX_UNKNOWN_BATCHES


def _require_batches(read: int, loader: Loader, label: str) -> None:
    if not read:
        raise DataError(f"{label}: gave no batch\n  {_explain_empty(loader)}")


def count_batches(loader: Loader, limit: int | None) -> int | None:
    """How many batches a pass over the loader has, if it knows."""
    try:
        length = len(loader)  # type: ignore[arg-type]  # not every loader has a length
    except (TypeError, NotImplementedError):
        return None
    return length if limit is None else min(length, limit)


def count_samples(loader: Loader) -> int | None:
    """How many samples a pass over the loader draws, if it knows."""
    source = getattr(loader, "sampler", None)
    if not isinstance(source, Sized):
        source = getattr(loader, "dataset", None)
    is_split = isinstance(source, IterableDataset) and getattr(loader, "num_workers", 0) > 1
    return len(source) if isinstance(source, Sized) and not is_split else None


def _count_samples_at(loader: Loader, position: int) -> int:
    """How many samples a batch of a loader has that does not show it."""
    size, samples = getattr(loader, "batch_size", None) or 1, count_samples(loader)
    left = size if samples is None else samples - position * size
    return min(size, left) if left > 0 else size


def _explain_empty(loader: Loader) -> str:
    dataset = getattr(loader, "dataset", None)
    if getattr(loader, "drop_last", False) and isinstance(dataset, Sized):
        size = getattr(loader, "batch_size", None)
        return f"{len(dataset)} samples make no batch of {size}; use drop_last=False"
    if isinstance(loader, Iterator):
        return "an iterator can be read only once; give an object that starts again each epoch"
    return "check the dataset's length and the filters in front of it"


@contextmanager
def explaining_errors(
    loader: Loader, label: str, find_log: FindLog | None = None
) -> Iterator[None]:
    """Raise a DataError when a worker of the loader dies in a block; hint at uneven samples."""
    try:
        yield
    except Exception as error:
        reason = _find_mismatch(error)
        if reason:
            error.add_note(f"{label}: {reason}")
        if not (is_worker_death(error) or _is_broken_connection(error, loader)):
            raise
        log = find_log(loader) if find_log is not None else None
        raise explain_worker_death(error, loader, label, log) from error


def _find_mismatch(error: Exception) -> str:
    """Why samples make no batch, for the message; empty if the error has another cause."""
    text = str(error)
    if any(part in text for part in _UNEVEN_MESSAGES):
        return "the samples of a batch differ in shape; set collate: pad"
    *_, last = traceback.extract_tb(error.__traceback__)
    if not (last.filename.endswith(_COLLATE_FILES) or any(name in text for name in _COLLATE_FILES)):
        return ""
    if "NoneType" in text:
        return "a sample of a batch has a value None; fill it in, or leave the sample out"
    if isinstance(error, KeyError):
        return "the samples of a batch have different keys; give all of them the same"
    return ""


def explain_worker_death(
    error: BaseException, loader: Loader, label: str, log: ReadLog | None
) -> WorkerDiedError:
    """An error with what the worker that died was reading, if its log says it."""
    last = log.find_last(error) if log is not None else ""
    reading = last and f" while it read {_name_item(loader)} {last}"
    fault, lines = log.find_crash(error) if log is not None else ("", "")
    return WorkerDiedError(label, reading, fault=fault, lines=lines)


def _name_item(loader: Loader) -> str:
    """What an index in the read log counts: batches, or samples of a dataset."""
    if isinstance(loader, PositionedLoader):
        return "batch"
    return f"{type(getattr(loader, 'dataset', None)).__name__} sample"


def is_worker_death(error: BaseException) -> bool:
    """Whether a worker died; torch's signal handler may raise that at any line."""
    if isinstance(error, RuntimeError):
        return bool(_WORKER_DEATH.search(str(error)))
    return isinstance(error, WorkerDiedError)


def _is_broken_connection(error: Exception, loader: Loader) -> bool:
    """Whether the connection to a worker broke: it died while it sent a batch."""
    if not isinstance(loader, DataLoader) or not loader.num_workers:
        return False
    if "in DataLoader worker process" in str(error):  # raised by the dataset
        return False
    if isinstance(error, ConnectionError | EOFError):
        return True
    is_cut_off = type(error).__name__ == "UnpicklingError"  # nothing here imports pickle
    if not (is_cut_off or isinstance(error, OSError | RuntimeError)):
        return False
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return False
    modules = (frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__))
    return any(name.startswith(("multiprocessing.", "torch.multiprocessing.")) for name in modules)
