"""Where batches come from: loaders in a fixed order, grouped into one step's worth."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sized
from contextlib import contextmanager
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from epochal.engine.ahead import Ahead
from epochal.engine.gather import Aim, Gatherer
from epochal.engine.move import Change, Mover, batch_size, keep
from epochal.engine.preempt import keep_workers
from epochal.engine.seeding import derive
from epochal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

    from epochal.engine.task import Batch, Loader

    Open = Callable[[Loader, int | None], Iterator[Batch]]

Microbatches = tuple["Batch", ...]

_DEAD_WORKER = re.compile(r"DataLoader worker \(pid")


@final
class Feed:
    """The training loader as steps; its order is a function of the seed and the epoch.

    The loader is read from the task anew in each epoch, so a task may replace it.

    Args:
        task: Has the ``train_loader``.
        seed: Seed of the run.
        accumulate: Batches per step; the last step of an epoch takes what is left.
        limit: Most batches to read per epoch.
        move: Brings batches where they are needed. On a CUDA device the feed does that itself, one
            batch ahead; elsewhere it is for whoever uses a batch.
    """

    def __init__(
        self,
        task: object,
        *,
        seed: int,
        accumulate: int,
        limit: int | None,
        move: Mover = keep,
    ) -> None:
        self.task = task
        """Whose loader is read; another one counts from the next epoch on."""

        self._seed = seed
        self._accumulate = accumulate
        self._limit = limit
        is_ahead = isinstance(move, Change) and move.device.type == "cuda"
        self._ahead = Ahead(move) if is_ahead and isinstance(move, Change) else None
        self._gatherer = Gatherer(move, is_pinned=is_ahead)
        self.aim = Aim()
        """Where training batches of data on the device go."""

        self.position = 0
        """Index in the epoch of the first batch of the step."""

        self.samples = 0
        """Samples that were handed out since the run started."""

        self.wait_seconds = 0.0
        """Time spent waiting for data since the run started."""

        self.is_complete = False
        """Whether the epoch's last batch was handed out, as far as that can be known."""

    @property
    def loader(self) -> Loader:
        """The training loader.

        Raises:
            DataError: The task has none, or several.
        """
        loaders = require_loaders(self.task, "train")
        if list(loaders) != [""]:
            raise DataError(
                f"train_loader: training takes one loader, got {sorted(loaders)}\n"
                "  join the datasets, for example with torch.utils.data.ConcatDataset"
            )
        return loaders[""]

    def epoch(self, number: int) -> Iterator[Microbatches]:
        """The steps of one epoch, counted from 0; the last one may be short."""
        loader = self.loader
        set_order(loader, derive(self._seed, "order", number), number)
        known = count_batches(loader, self._limit)
        usual = getattr(loader, "batch_size", None) or 1
        read, accumulate = 0, self._accumulate
        self.is_complete = False
        with explaining_deaths(loader, "train_loader"):
            batches = self.open(loader, self._limit, self.aim if accumulate == 1 else None)
            while True:
                begun = perf_counter()
                microbatches = tuple(islice(batches, accumulate))
                self.wait_seconds += perf_counter() - begun
                if not microbatches:
                    break
                self.position = read
                read += len(microbatches)
                for batch in microbatches:
                    kind = type(batch)
                    first = batch
                    if kind is list or kind is tuple:
                        first = batch[0] if batch else None
                    elif kind is dict:
                        first = next(iter(batch.values()), None)
                    # The usual batch is counted here, where it takes no call.
                    if type(first) is Tensor and first.ndim:
                        self.samples += first.shape[0]
                    else:
                        self.samples += batch_size(batch) or usual
                self.is_complete = read == known
                yield microbatches
        _require_batches(read, loader, "train_loader")
        self.is_complete = True

    def open(self, loader: Loader, limit: int | None, aim: Aim | None = None) -> Iterator[Batch]:
        """A pass over any loader in its own order: gathered if it can be, ahead if that helps."""
        keep_workers(loader)
        gathered = self._gatherer.find(loader, aim)
        batches = islice(loader if gathered is None else gathered.batches, limit)
        is_moved = gathered is not None and gathered.is_moved
        return batches if self._ahead is None or is_moved else self._ahead(batches)

    @property
    def steps_per_epoch(self) -> int | None:
        """Optimizer steps in an epoch, if the loader knows its length."""
        batches = count_batches(self.loader, self._limit)
        return None if batches is None else math.ceil(batches / self._accumulate)

    @property
    def samples_per_epoch(self) -> int | None:
        """Samples in an epoch, if the loader knows what it draws and in batches of which size."""
        loader = self.loader
        batches, samples = count_batches(loader, self._limit), _count_samples(loader)
        size = getattr(loader, "batch_size", None)
        if batches is None or samples is None or not isinstance(size, int):
            return None
        return min(samples, batches * size)

    @property
    def samples_per_step(self) -> int | None:
        """The most samples one step can have, if the loader knows its batch size."""
        size = getattr(self.loader, "batch_size", None)
        return size * self._accumulate if isinstance(size, int) else None


def read_fact(task: object, name: str) -> object:
    """An attribute of a task, or None if it has no such attribute.

    Raises:
        AttributeError: It has one, a property for instance, that itself raised this.
    """
    try:
        return getattr(task, name)
    except AttributeError:
        if hasattr(type(task), name):
            raise
        return None


def named_loaders(task: object, split: str) -> dict[str, Loader]:
    """The loaders of a split by name; a single one has the empty name.

    Raises:
        DataError: One of them cannot be a loader.
        AttributeError: The task's own property of that name raised it.
    """
    loader: Any = read_fact(task, f"{split}_loader")  # a loader or several of them
    if loader is None:
        return {}
    loaders = dict(loader) if isinstance(loader, Mapping) else {"": loader}
    for name, one in loaders.items():
        _require_iterable(one, f"{split}_loader[{name!r}]" if name else f"{split}_loader")
    return loaders


def require_loaders(task: object, split: str) -> dict[str, Loader]:
    """The loaders of a split by name; a prediction may use those of ``test``.

    Raises:
        DataError: The task has none.
    """
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
    if hasattr(loader, "__iter__") and not isinstance(loader, str | bytes | type):
        return
    kind = type(loader).__name__
    if hasattr(loader, "__getitem__") and not isinstance(loader, str | bytes | type):
        what = f"{kind} is a dataset, which gives samples, not batches"
    else:
        what = f"{loader!r} gives no batches"
    raise DataError(
        f"{label}: {what}\n  wrap the dataset: torch.utils.data.DataLoader(dataset, batch_size=32)"
    )


def iter_batches(
    loader: Loader, label: str, limit: int | None, *, open_loader: Open = islice
) -> Iterator[Batch]:
    """The batches of a loader.

    Raises:
        DataError: There is none, or one of the loader's processes died. Exceptions of a
            dataset itself pass untouched.
    """
    read = 0
    with explaining_deaths(loader, label):
        for batch in open_loader(loader, limit):
            read += 1
            yield batch
    _require_batches(read, loader, label)


@contextmanager
def explaining_deaths(loader: Loader, label: str) -> Iterator[None]:
    """Say it in words when one of the loader's processes dies in a block."""
    try:
        yield
    except (RuntimeError, ConnectionError, EOFError) as error:
        if not _is_death(error, loader):
            raise
        raise DataError(
            f"{label}: a worker process of the loader died\n"
            "  often it ran out of memory; try workers=0 to see an error of the dataset itself"
        ) from error


def _require_batches(read: int, loader: Loader, label: str) -> None:
    if not read:
        raise DataError(f"{label}: gave no batch\n  {_why_empty(loader)}")


def _is_death(error: Exception, loader: Loader) -> bool:
    """Whether an error of a loader says that one of its processes is gone."""
    if isinstance(error, RuntimeError):
        return bool(_DEAD_WORKER.search(str(error)))
    # A batch was on its way: then the line to the process breaks. What a dataset raises in a
    # process comes with its own traceback.
    is_own = "in DataLoader worker process" in str(error)
    return isinstance(loader, DataLoader) and loader.num_workers > 0 and not is_own


def count_batches(loader: Loader, limit: int | None) -> int | None:
    """How many batches a pass over the loader has, if it knows."""
    try:
        length = len(loader)  # type: ignore[arg-type]  # not every loader has a length
    except (TypeError, NotImplementedError):
        return None
    return length if limit is None else min(length, limit)


def _count_samples(loader: Loader) -> int | None:
    """How many samples a pass over the loader draws, if it knows."""
    source = getattr(loader, "sampler", None)
    if not isinstance(source, Sized):
        source = getattr(loader, "dataset", None)
    is_split = isinstance(source, IterableDataset) and getattr(loader, "num_workers", 0) > 1
    return len(source) if isinstance(source, Sized) and not is_split else None


def set_order(loader: Loader, seed: int, epoch: int) -> None:
    """Make the loader's order and its workers' seeds depend on ``seed`` alone."""
    for owner in _drawers(loader):
        # One each: a generator shared by loader and sampler would be drawn from in turns.
        owner.generator = torch.Generator().manual_seed(seed)
    for sampler in _samplers(loader):
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)


@contextmanager
def fixed_order(loader: Loader, seed: int) -> Iterator[None]:
    """Order a loader by ``seed`` for a block; afterwards its generators are as before."""
    owners = _drawers(loader)
    kept = [owner.generator for owner in owners]
    try:
        for owner in owners:
            owner.generator = torch.Generator().manual_seed(seed)
        yield
    finally:
        for owner, generator in zip(owners, kept, strict=True):
            owner.generator = generator


def _samplers(loader: Loader) -> list[Any]:  # samplers share no type, only attributes
    batch_sampler = getattr(loader, "batch_sampler", None)
    found = (
        getattr(loader, "sampler", None),
        batch_sampler,
        getattr(batch_sampler, "sampler", None),
    )
    unique = {id(sampler): sampler for sampler in found if sampler is not None}
    return list(unique.values())


def _drawers(loader: Loader) -> list[Any]:  # same
    """The loader and its samplers, as far as they draw from a generator of their own."""
    owners = [*_samplers(loader), loader]
    return [owner for owner in owners if isinstance(_generator(owner), torch.Generator | None)]


def _generator(owner: object) -> object:
    return getattr(owner, "generator", "none of its own")


def _why_empty(loader: Loader) -> str:
    dataset = getattr(loader, "dataset", None)
    if getattr(loader, "drop_last", False) and isinstance(dataset, Sized):
        size = getattr(loader, "batch_size", None)
        return f"{len(dataset)} samples make no batch of {size}; use drop_last=False"
    if isinstance(loader, Iterator):
        return "an iterator can be read once only; give an object that starts anew each epoch"
    return "check the dataset's length and the filters in front of it"
