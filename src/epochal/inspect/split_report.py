"""Facts about the samples of a split: fields, labels, missing values, duplicates, time."""

from __future__ import annotations

import copy
import hashlib
import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, takewhile
from time import perf_counter
from typing import TYPE_CHECKING, Any, final

import numpy as np
from torch.utils.data import DataLoader, IterableDataset
from typing_extensions import override

from epochal.data.batching import PadCollate, list_samples
from epochal.data.chain import Chain
from epochal.data.chain_loader import ChainLoader
from epochal.data.pipe import Item, Pass, Pipe
from epochal.engine.feed.batch_spec import find_batch_problems, to_plain
from epochal.engine.feed.feed import (
    count_batches,
    count_samples,
    explain_worker_death,
    is_worker_death,
)
from epochal.engine.feed.sampling_order import DataPass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from epochal.engine.feed.batch_spec import BatchSpec
    from epochal.engine.interfaces.task import Batch, Loader

Sample = dict[str, Any]  # values by field

_MAX_UNREADABLE = 10
_MAX_CLASSES = 100
_MAX_LABEL = 40  # characters; longer texts are no names of classes
_MAX_SHAPES, _LISTED_SHAPES = 6, 3
_TIMED_ITEMS = 64
_ORIGINS = ("path", "__key__")  # where a sample was found: copies of it have others


@final
@dataclass(slots=True)
class FieldReport:
    """One field of the samples."""

    dtype: str = ""
    """Of the first value that is there; ``text`` for texts, whose lengths are the numbers."""

    shapes: Counter[str] = field(default_factory=Counter)
    least: float = math.inf
    most: float = -math.inf
    total: float = 0.0
    num_values: int = 0
    num_missing: int = 0
    """Values that are None or NaN."""

    values: Counter[str] = field(default_factory=Counter)
    """How often each value occurs; only of whole numbers and texts."""

    @property
    def mean(self) -> float:
        """The mean of all numbers."""
        return self.total / self.num_values if self.num_values else math.nan

    def add(self, value: Any) -> None:  # noqa: ANN401 - of any type
        """Count one more value."""
        if value is None:
            self.num_missing += 1
            return
        array = np.asarray(value)
        self.dtype = self.dtype or ("text" if array.dtype.kind in "US" else str(array.dtype))
        if array.dtype.kind == "U" and not array.ndim:
            self._add_numbers(np.asarray(len(str(value))))
        self.shapes["x".join(map(str, array.shape)) or "single"] += 1
        if array.dtype.kind in "biuf" and array.size:
            known = array[~np.isnan(array)] if array.dtype.kind == "f" else array
            self.num_missing += array.size - known.size
            if known.size:
                self._add_numbers(known)
        if not array.ndim and array.dtype.kind in "biuU" and len(self.values) <= _MAX_CLASSES:
            self.values[str(array.item())] += 1

    def _add_numbers(self, known: np.ndarray[Any, Any]) -> None:
        self.least = min(self.least, float(known.min()))
        self.most = max(self.most, float(known.max()))
        self.total += float(known.sum(dtype=np.float64))
        self.num_values += known.size

    @property
    def unit(self) -> str:
        """What its numbers count, if they are not the values themselves."""
        return "characters" if self.dtype == "text" else ""

    def describe_shapes(self) -> str:
        """All shapes, or if they are many the range of each axis, such as 3x(20 to 64)x32."""
        if len(self.shapes) <= _LISTED_SHAPES:
            return ", ".join(shape for shape, _ in self.shapes.most_common())
        known = [list(map(int, one.split("x"))) for one in self.shapes if one != "single"]
        if len({len(one) for one in known}) > 1 or "single" in self.shapes:
            few = self.shapes.most_common(_LISTED_SHAPES)
            return f"{', '.join(shape for shape, _ in few)}, ..."
        ends = [(min(sizes), max(sizes)) for sizes in zip(*known, strict=True)]
        if len(ends) == 1:
            return f"{ends[0][0]} to {ends[0][1]}"
        return "x".join(f"({low} to {high})" if low < high else str(low) for low, high in ends)

    def to_json(self) -> dict[str, Any]:
        """The same as plain values."""
        found: dict[str, Any] = {"dtype": self.dtype, "missing": self.num_missing}
        found["shapes"] = dict(self.shapes.most_common(_MAX_SHAPES))
        if self.num_values:
            end = "_length" if self.unit else ""
            numbers = {"min": self.least, "max": self.most, "mean": self.mean}
            found |= {f"{name}{end}": number for name, number in numbers.items()}
        return found


@final
@dataclass(slots=True)
class SplitReport:
    """What reading a part of a split showed."""

    name: str
    num_samples: int | None
    """Of a whole pass; None if it is unknown."""

    num_batches: int | None
    num_read: int = 0
    seconds: float = 0.0
    """Time for the samples that were read."""

    fields: dict[str, FieldReport] = field(default_factory=dict)
    digests: Counter[str] = field(default_factory=Counter)
    examples: list[Sample] = field(default_factory=list)
    pipe_seconds: dict[str, float] = field(default_factory=dict)
    """Time per item of each pipe, measured on the first items; empty without a chain."""

    problems: list[str] = field(default_factory=list)
    """How the first batch differs from ``task.batch_spec``."""

    @property
    def num_duplicates(self) -> int:
        """Samples that were read before."""
        return self.digests.total() - len(self.digests)

    @property
    def labels(self) -> dict[str, Counter[str]]:
        """Counts of each value of the fields that look like classes."""
        return {
            name: one.values
            for name, one in self.fields.items()
            if 1 < len(one.values) <= min(_MAX_CLASSES, max(self.num_read // 2, 2))
            and max(map(len, one.values)) <= _MAX_LABEL
        }

    def to_json(self) -> dict[str, Any]:
        """The same as plain values, without the samples."""
        return {
            "samples": self.num_samples,
            "batches": self.num_batches,
            "read": self.num_read,
            "fields": {name: one.to_json() for name, one in self.fields.items()},
            "labels": {name: dict(counts) for name, counts in self.labels.items()},
            "duplicates": self.num_duplicates,
            "seconds_per_sample": self.seconds / self.num_read if self.num_read else None,
            "seconds_per_item_of_pipes": self.pipe_seconds,
            "batch_problems": self.problems,
        }


def inspect_split(
    name: str,
    loader: Loader,
    *,
    limit: int,
    examples: int,
    spec: BatchSpec | None = None,
) -> SplitReport:
    """Read up to ``limit`` samples of a loader; ``spec`` is compared with the first batch.

    Samples that do not fit into a batch, or that a batch pads, are read one by one.
    """
    report = SplitReport(name, count_samples(loader), count_batches(loader, None))
    may_lack = name.startswith("predict")
    unreadable: list[str] = []
    try:
        samples = _read_batches(report, loader, spec, may_lack=may_lack)
        collate = _find_collate(loader)
        if isinstance(collate, PadCollate) or collate is list_samples:
            next(samples, None)  # the first batch is compared and can be made
            samples = _read_samples(loader) or samples
        _add_samples(report, samples, limit, examples)
    except Exception as error:
        if is_worker_death(error):  # read here, the sample would end this process, too
            log = getattr(loader, "read_log", None)
            raise explain_worker_death(error, loader, f"{name}_loader", log) from error
        alone = _read_samples(loader, unreadable)
        if alone is None:
            raise
        report = SplitReport(name, report.num_samples, report.num_batches)
        report.problems = [f"its batches cannot be made: {_shorten(error)}"]
        _add_samples(report, alone, limit, examples)
        if not report.num_read:
            raise
        report.problems += unreadable[:_MAX_UNREADABLE]
        if len(unreadable) > _MAX_UNREADABLE:
            report.problems.append(f"{len(unreadable)} samples in all cannot be read")
    if isinstance(loader, ChainLoader) and not unreadable:
        report.pipe_seconds = time_pipes(loader.chain)
    return report


def _read_batches(
    report: SplitReport, loader: Loader, spec: BatchSpec | None, *, may_lack: bool
) -> Iterator[Sample]:
    batches = loader.open_pass(DataPass(0)) if isinstance(loader, ChainLoader) else iter(loader)
    for number, batch in enumerate(batches):
        if spec is not None and not number:
            report.problems = find_batch_problems(batch, spec, may_lack=may_lack)
        yield from split_samples(batch)


def _find_collate(loader: Loader) -> object:
    if isinstance(loader, ChainLoader):
        collates = [getattr(pipe, "collate", None) for pipe in loader.chain.pipes]
        return next(filter(None, collates), None)
    return getattr(loader, "collate_fn", None)


def _read_samples(loader: Loader, unreadable: list[str] | None = None) -> Iterator[Sample] | None:
    """The samples before they become batches; None if the loader has none.

    With ``unreadable``, samples that raise an error are described there and left out, if the data
    have an index.
    """
    if isinstance(loader, ChainLoader):
        pipes = loader.chain.pipes
        before = list(takewhile(lambda pipe: not pipe.makes_batches, pipes))
        if len(before) == len(pipes):
            return None
        chain = Chain(*before)
        length = chain.count() if chain.is_indexed and unreadable is not None else None
        if length is None:
            return map(_as_sample, chain.items())
        return _read_each(chain, range(length), unreadable)
    if not isinstance(loader, DataLoader) or loader.batch_size is None:
        return None
    dataset: Any = loader.dataset
    if isinstance(dataset, IterableDataset):
        return map(_as_sample, dataset)
    return _read_each(dataset, loader.sampler, unreadable)


def _read_each(
    data: Any,  # noqa: ANN401 - anything with an index
    indices: Iterable[int],
    unreadable: list[str] | None,
) -> Iterator[Sample]:
    for index in indices:
        try:
            item = data[index]
        except Exception as error:
            if unreadable is None:
                raise
            unreadable.append(f"sample {index} cannot be read: {_shorten(error)}")
            continue
        yield _as_sample(item)


def _shorten(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _as_sample(item: Any) -> Sample:  # noqa: ANN401 - of any type
    if not isinstance(item, Mapping):
        item = dict(enumerate(item if isinstance(item, list | tuple) else [item]))
    found: Sample = {}
    for name, value in item.items():
        if isinstance(value, Mapping):  # such as the target of an image, with boxes and labels
            found |= {f"{name}.{inner}": one for inner, one in _as_sample(value).items()}
        else:
            found[str(name)] = to_plain(value)
    return found


def _add_samples(report: SplitReport, samples: Iterator[Sample], limit: int, examples: int) -> None:
    while report.num_read < limit:
        begun = perf_counter()
        sample = next(samples, None)
        report.seconds += perf_counter() - begun
        if sample is None:
            return
        _add_sample(report, sample, examples)


def _add_sample(report: SplitReport, sample: Sample, examples: int) -> None:
    report.num_read += 1
    digest = hashlib.sha256()
    for name, value in sample.items():
        array = np.asarray(value)
        if name not in report.fields:
            report.fields[name] = FieldReport()
        report.fields[name].add(value)
        if name in _ORIGINS:
            continue
        digest.update(name.encode())
        digest.update(repr(value).encode() if array.dtype.hasobject else array.tobytes())
    report.digests[digest.hexdigest()] += 1
    if len(report.examples) < examples:
        report.examples.append(sample)


def split_samples(batch: Batch) -> Iterator[Sample]:
    """The samples of a batch, each as a dict of plain values and arrays."""
    if isinstance(batch, Mapping):
        columns = {str(name): _rows(value) for name, value in batch.items()}
    elif isinstance(batch, list) and batch and isinstance(batch[0], Mapping):
        yield from map(_as_sample, batch)
        return
    else:
        parts = list(batch) if isinstance(batch, list | tuple) else [batch]
        columns = {str(number): _rows(value) for number, value in enumerate(parts)}
    known = [len(column) for column in columns.values() if column is not None]
    for index in range(min(known, default=0)):
        yield _as_sample({n: column[index] for n, column in columns.items() if column is not None})


def _rows(value: Any) -> Any:  # noqa: ANN401 - a column of any type, or None
    value = to_plain(value)
    return value if isinstance(value, list | tuple) or np.ndim(value) else None


def time_pipes(chain: Chain) -> dict[str, float]:
    """Seconds per item of each pipe without the pipes before it, measured on the first items."""
    timed: list[_Timed] = []
    ends: list[_Timed] = []  # what is before a pipe that keeps items is read by itself
    for pipe in takewhile(lambda one: not one.makes_batches, chain.pipes):
        one = copy.copy(pipe)
        if timed:
            one.parent = timed[-1]
            ends += timed[-1:] if one.keeps_items else []
        timed.append(_Timed(one))
    for _ in ("once without counting", "measured"):
        for one_timed in timed:
            one_timed.seconds, one_timed.items = 0.0, 0
        for end in [*ends, *timed[-1:]]:
            deque(islice(end.iterate(chain.passes(Pass())[0]), _TIMED_ITEMS), maxlen=0)
    found: dict[str, float] = {}
    before = 0.0
    for number, one_timed in enumerate(timed, 1):
        is_kept = one_timed.parent.keeps_items
        own = one_timed.seconds - (0.0 if is_kept else before)
        name = f"{number} {type(one_timed.parent).__name__}"
        found[name] = max(own, 0.0) / max(one_timed.items, 1)
        before = one_timed.seconds
    return found


@final
class _Timed(Pipe):
    """The items of a pipe, and the time that it takes to read them."""

    def __init__(self, parent: Pipe) -> None:
        self.parent, self.number = parent, parent.number
        self.seconds, self.items = 0.0, 0

    @override
    def read(self, index: int, one_pass: Pass) -> Item:
        return self._time(1, self.parent.read, index, one_pass)

    @override
    def read_many(self, indices: Sequence[int], one_pass: Pass) -> list[Item]:
        items: list[Item] = self._time(len(indices), self.parent.read_many, indices, one_pass)
        return items

    @override
    def iterate(self, one_pass: Pass, start: int = 0) -> Iterator[Item]:
        items = self._time(0, self.parent.iterate, one_pass, start)
        end = object()
        while (item := self._time(1, next, items, end)) is not end:
            yield item
        self.items -= 1

    def _time(self, items: int, call: Callable[..., Any], *args: object) -> Any:  # noqa: ANN401 - of any type
        begun = perf_counter()
        try:
            return call(*args)
        finally:
            self.seconds += perf_counter() - begun
            self.items += items


def find_overlap(one: SplitReport, other: SplitReport) -> int:
    """Samples of one split that the other has too, among those that were read."""
    return len(one.digests.keys() & other.digests.keys())
