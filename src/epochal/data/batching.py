"""Pipes that make batches: batch, bucket_by_length, pack, pad; and how samples are collated."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Annotated, Any, Literal, final

import numpy as np
from torch.utils.data import default_collate
from typing_extensions import override

from epochal.config.bounds import AtLeast
from epochal.data.pipe import Item, Pass, Pipe
from epochal.engine.feed.host_generators import mix_seed
from epochal.errors import DataError, suggest

Collate = Callable[[list[Any]], Any]


def list_samples(samples: list[Item]) -> list[Item]:
    """The samples as they are, for a pipe that makes a batch of them later."""
    return samples


@final
class PadCollate:
    """Makes a batch of samples whose arrays have different lengths.

    Args:
        value: What is added at the end of shorter arrays.
        multiple: The length of a batch is a multiple of this.
        length: The length of every batch; that of the longest sample if null.
        mask: The key of a mask that is True where a sample has a value of its own; null: no mask.
    """

    draws_random = False

    def __init__(
        self,
        value: float = 0,
        multiple: Annotated[int, AtLeast(1)] = 1,
        length: Annotated[int, AtLeast(1)] | None = None,
        mask: str | None = None,
    ) -> None:
        self.value, self.multiple, self.length, self.mask = value, multiple, length, mask

    def __call__(self, samples: list[Item]) -> Item:
        """The batch."""
        first = samples[0]
        if not isinstance(first, Mapping):
            if isinstance(first, list | tuple) and first and not np.isscalar(first[0]):
                return [default_collate(self._pad(list(column))) for column in zip(*samples)]  # noqa: B905
            return default_collate(self._pad(list(samples)))
        batch = {
            key: default_collate(self._pad([sample[key] for sample in samples])) for key in first
        }
        padded = [key for key in first if any(_has_rows(sample[key]) for sample in samples)]
        if self.mask is not None and padded:
            key = padded[0]
            lengths = [len(sample[key]) for sample in samples]
            columns = np.arange(batch[key].shape[1])
            batch[self.mask] = default_collate([columns < length for length in lengths])
        return batch

    def _pad(self, values: list[Any]) -> list[Any]:
        if not any(map(_has_rows, values)):
            return values
        arrays = _as_arrays(values)
        wanted = self.length or max(map(len, arrays))
        wanted = -(-wanted // self.multiple) * self.multiple
        longest = max(map(len, arrays))
        if longest > wanted:
            raise DataError(
                f"pad: a sample has {longest} values, more than length {wanted}\n"
                "  set a larger length, or cut samples with a map before"
            )
        return [_extend(array, wanted, self.value) for array in arrays]


def _as_arrays(values: list[Any]) -> list[np.ndarray[Any, Any]]:
    """Arrays of one type; an empty list, which has none, gets that of the others."""
    types = {np.asarray(value).dtype for value in values if _has_rows(value)}
    kind = types.pop() if len(types) == 1 else None
    return [np.asarray(value, kind if isinstance(value, list) else None) for value in values]


def _has_rows(value: object) -> bool:
    if isinstance(value, list):
        return bool(value) and isinstance(value[0], int | float | bool)
    return getattr(value, "ndim", 0) > 0


def _extend(array: np.ndarray[Any, Any], length: int, value: float) -> np.ndarray[Any, Any]:
    if len(array) == length:
        return array
    padded = np.full((length, *array.shape[1:]), value, dtype=array.dtype)
    padded[: len(array)] = array
    return padded


_COLLATES: dict[str, Collate] = {
    "stack": default_collate,
    "pad": PadCollate(),
    "list": list_samples,
}


def find_collate(collate: Collate | str | None) -> Collate:
    """The function that makes a batch of a list of samples."""
    if collate is None or isinstance(collate, str):
        if collate and collate not in _COLLATES:
            hint = suggest(collate, _COLLATES)
            raise DataError(f"collate: unknown name {collate!r}\n  {hint}")
        return _COLLATES[collate or "stack"]
    # A class is either called with the samples, or has instances that are.
    has_call = isinstance(collate, type) and any("__call__" in vars(one) for one in collate.__mro__)
    made: Collate = collate() if isinstance(collate, type) and has_call else collate
    return made


CollateName = Literal["stack", "pad", "list"]


@final
class Batch(Pipe):
    """Batches of a fixed number of items.

    Args:
        size: Items in a batch; the last one may have fewer.
        drop_last: Leave out a last batch that is not full.
        collate: Makes a batch of a list of items: stack, pad, list or a function of yours.
    """

    makes_batches = True

    def __init__(
        self,
        size: Annotated[int, AtLeast(1)],
        *,
        drop_last: bool = False,
        collate: CollateName | Callable[[list[Any]], Any] = "stack",
    ) -> None:
        self.size, self.drop_last, self.collate = size, drop_last, find_collate(collate)

    @override
    def count(self, one_pass: Pass) -> int | None:
        length = self.parent.count(one_pass)
        if length is None:
            return None
        return length // self.size if self.drop_last else -(-length // self.size)

    @override
    def rows_of(self, index: int, one_pass: Pass) -> range:
        length = self.parent.count(one_pass)
        return range(self.size if length is None else min(self.size, length - index * self.size))

    @override
    def read(self, index: int, one_pass: Pass) -> Item:
        rows = self.rows_of(index, one_pass)
        if one_pass.rows is not None:
            rows = rows[slice(*one_pass.rows)]
        places = range(index * self.size + rows.start, index * self.size + rows.stop)
        items = self.parent.read_group(places, one_pass)
        self.now_reading[0] = -1  # no single item
        return self.collate(items)

    @override
    def seed(self, one_pass: Pass) -> int:
        return self.vary_seed(super().seed(one_pass), one_pass)

    @override
    def vary_seed(self, seed: int, one_pass: Pass) -> int:
        first = one_pass.rows[0] if one_pass.rows else 0
        return mix_seed(seed, first) if first else seed

    @override
    def iterate(self, one_pass: Pass, start: int = 0) -> Iterator[Item]:
        if self.is_indexed:
            return super().iterate(one_pass, start)
        size = self.size // one_pass.world if one_pass.divides_batches else self.size
        items = self.parent.iterate(one_pass, start * size)
        groups = iter(lambda: list(islice(items, size)), [])
        return _collated(self, groups, one_pass, start, size)


def _collated(
    pipe: Batch | BucketByLength,
    groups: Iterator[list[Item]],
    one_pass: Pass,
    start: int,
    size: int,
) -> Iterator[Item]:
    """A batch of each group of samples; a short one only if it is not dropped."""
    full = (group for group in groups if not pipe.drop_last or len(group) == size)
    collate = pipe.collate
    for number, group in enumerate(full, start):
        if not getattr(collate, "draws_random", collate not in (default_collate, list_samples)):
            yield collate(group)
        else:
            with pipe.generators.seeded(pipe.seed_at(number, one_pass)):
                batch = collate(group)
            yield batch


@final
class BucketByLength(Pipe):
    """Batches of items with similar lengths, so that little padding is needed.

    Items of a window are sorted by length, cut into batches and drawn in random order.

    Args:
        size: Items in a batch; with ``max_tokens`` the most items.
        key: The entry of a sample whose length counts; null: the sample itself.
        max_tokens: The most values of a batch after padding: items times the longest of them.
        window: Items that are sorted at once.
        drop_last: Leave out batches that are not full.
        collate: Makes a batch of a list of items: stack, pad, list or a function of yours.
    """

    gives = "stream"
    makes_batches = True
    sets_order = True

    def __init__(
        self,
        size: Annotated[int, AtLeast(1)],
        key: str | int | None = None,
        *,
        max_tokens: Annotated[int, AtLeast(1)] | None = None,
        window: Annotated[int, AtLeast(1)] = 1000,
        drop_last: bool = False,
        collate: CollateName | Callable[[list[Any]], Any] = "pad",
    ) -> None:
        self.size, self.key, self.max_tokens, self.window = size, key, max_tokens, window
        self.drop_last, self.collate = drop_last, find_collate(collate)

    @override
    def iterate(self, one_pass: Pass, start: int = 0) -> Iterator[Item]:
        groups = self._groups(one_pass)
        return _collated(self, islice(groups, start, None), one_pass, start, self.size)

    def _groups(self, one_pass: Pass) -> Iterator[list[Item]]:
        draw, items = random.Random(self.seed(one_pass)), self.parent.iterate(one_pass)
        for window in iter(lambda: list(islice(items, self.window)), []):
            window.sort(key=self._length)
            self._check_longest(window[-1])
            groups: list[list[Item]] = [[]]
            for item in window:
                tokens = (len(groups[-1]) + 1) * self._length(item)
                is_full = len(groups[-1]) == self.size
                if groups[-1] and (is_full or tokens > (self.max_tokens or tokens)):
                    groups.append([])
                groups[-1].append(item)
            draw.shuffle(groups)
            yield from groups

    def _length(self, item: Item) -> int:
        entry = _get_entry(item, self.key, "bucket_by_length")
        if isinstance(entry, Mapping) or not hasattr(entry, "__len__") or _is_scalar(entry):
            raise _not_a_sequence(item, entry, "bucket_by_length")
        return len(entry)

    def _check_longest(self, item: Item) -> None:
        longest = self._length(item)
        if self.max_tokens is not None and longest > self.max_tokens:
            raise DataError(
                f"bucket_by_length: a sample has {longest} values, more than max_tokens "
                f"{self.max_tokens}\n"
                "  set a larger max_tokens, or cut or filter long samples before"
            )


def _is_scalar(entry: object) -> bool:
    return getattr(entry, "ndim", 1) == 0


def _not_a_sequence(item: Item, entry: object, pipe: str) -> DataError:
    kind, shown = type(entry).__name__, f"{entry!r:.60}"
    hint = "make a list or an array of it with a map before"
    if isinstance(item, Mapping):
        hint = f"set key to an entry that is one; a sample has {', '.join(map(repr, item))}"
    return DataError(f"{pipe}: {shown}, a {kind}, is not a sequence of values\n  {hint}")


def _get_entry(item: Item, key: str | int | None, pipe: str) -> Any:  # noqa: ANN401 - of any type
    """The entry of a sample that a pipe needs; the sample itself without a key."""
    if key is None:
        return item
    try:
        return item[key]
    except (LookupError, TypeError) as error:
        has = f"only {', '.join(map(repr, item))}" if isinstance(item, Mapping) else "no keys"
        what = f"{pipe}: a sample, a {type(item).__name__}, has no {key!r}, it has {has}"
        raise DataError(f"{what}\n  set key to one of its entries") from error


@final
class Pack(Pipe):
    """Sequences joined into blocks of one length, so that nothing is padded.

    Each block is a dict of ``tokens`` and ``segments``, which numbers the sequences of a block
    from 0, for a mask or for positions.

    Args:
        length: Tokens in a block.
        key: The entry of a sample that has its tokens; null: the sample itself.
        separator: A token between two sequences; null: none.
        drop_last: Leave out the last block if it is not full; otherwise it is shorter.
    """

    gives = "stream"

    def __init__(
        self,
        length: Annotated[int, AtLeast(1)],
        key: str | int | None = None,
        *,
        separator: int | None = None,
        drop_last: bool = True,
    ) -> None:
        self.length, self.key, self.separator, self.drop_last = length, key, separator, drop_last

    @override
    def iterate(self, one_pass: Pass, start: int = 0) -> Iterator[Item]:
        return islice(self._blocks(one_pass), start, None)

    def _blocks(self, one_pass: Pass) -> Iterator[Item]:
        parts: list[np.ndarray[Any, Any]] = []
        waiting = 0
        for item in self.parent.iterate(one_pass):
            entry = _get_entry(item, self.key, "pack")
            tokens = np.asarray(entry)
            if not tokens.ndim:
                raise _not_a_sequence(item, entry, "pack")
            if self.separator is not None:
                tokens = np.append(tokens, np.asarray(self.separator, tokens.dtype))
            while waiting + len(tokens) >= self.length:
                cut = self.length - waiting
                yield _join([*parts, tokens[:cut]])
                parts, waiting, tokens = [], 0, tokens[cut:]
            if len(tokens):
                parts.append(tokens)
                waiting += len(tokens)
        if parts and not self.drop_last:
            yield _join(parts)


def _join(parts: list[np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    parts = [part for part in parts if len(part)]
    segments = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    return {"tokens": np.concatenate(parts), "segments": segments}


@final
class Pad(Pipe):
    """Samples, or lists of them, with arrays made longer; a list becomes a batch.

    Args:
        value: What is added at the end of shorter arrays.
        multiple: Lengths become multiples of this.
        length: The length of every sample; in a list of samples that of the longest if null.
        mask: The key of a mask that is True where a sample has a value of its own; null: no mask.
    """

    def __init__(
        self,
        value: float = 0,
        multiple: Annotated[int, AtLeast(1)] = 1,
        length: Annotated[int, AtLeast(1)] | None = None,
        mask: str | None = None,
    ) -> None:
        self.collate = PadCollate(value, multiple, length, mask)

    @override
    def read(self, index: int, one_pass: Pass) -> Item:
        return self._pad(self.parent.read(index, one_pass))

    @override
    def iterate(self, one_pass: Pass, start: int = 0) -> Iterator[Item]:
        return map(self._pad, self.parent.iterate(one_pass, start))

    def _pad(self, item: Item) -> Item:
        if isinstance(item, list) and item and not np.isscalar(item[0]):
            return self.collate(item)
        batch = self.collate([item])
        return (
            {key: _first_of(value) for key, value in batch.items()}
            if isinstance(batch, dict)
            else _first_of(batch)
        )


def _first_of(batch: Any) -> Any:  # noqa: ANN401 - a tensor, or a list of texts
    first = batch[0]
    return first.numpy() if hasattr(first, "numpy") else first
