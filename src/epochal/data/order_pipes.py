"""Pipes that choose items and their order: shuffle, slice, sample, repeat, mix, split, shard."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from itertools import count, islice
from typing import TYPE_CHECKING, Annotated, Any, final

import numpy as np
from typing_extensions import override

from epochal.config.bounds import AtLeast
from epochal.data.pipe import Item, Pass, Pipe, require_length
from epochal.engine.feed.host_generators import mix_seed
from epochal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from epochal.data.chain import Chain


class _Chosen(Pipe, ABC):
    """Items at indices that are drawn at the start of a pass."""

    needs_index = True
    sets_order = True
    _drawn: tuple[Pass, memoryview] | None = None

    @override
    def count(self, one_pass: Pass) -> int:
        return self.count_drawn(require_length(self.parent, one_pass))

    @override
    def read(self, index: int, one_pass: Pass) -> Item:
        return self.parent.read(self._indices(one_pass)[index], one_pass)

    @override
    def read_many(self, indices: Sequence[int], one_pass: Pass) -> list[Item]:
        chosen = self._indices(one_pass)
        return self.parent.read_many([chosen[index] for index in indices], one_pass)

    def _indices(self, one_pass: Pass) -> memoryview:
        drawn = self._drawn
        if drawn is None or drawn[0] != one_pass:
            generator = np.random.Generator(np.random.PCG64(self.seed(one_pass)))
            length = require_length(self.parent, one_pass)
            drawn = self._drawn = one_pass, self.draw(generator, length).data
        return drawn[1]

    @abstractmethod
    def count_drawn(self, length: int) -> int:
        """How many indices are drawn from ``length`` items."""

    @abstractmethod
    def draw(self, generator: np.random.Generator, length: int) -> NDArray[np.int64]:
        """The indices of a pass over ``length`` items."""

    @override
    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_drawn"}


@final
class Shuffle(_Chosen):
    """All items in random order, another one in each epoch."""

    @override
    def count_drawn(self, length: int) -> int:
        return length

    @override
    def draw(self, generator: np.random.Generator, length: int) -> NDArray[np.int64]:
        return generator.permutation(length)


@final
class Sample(_Chosen):
    """Items that are drawn by weight.

    Args:
        weights: One for each item: how often it is drawn, relative to the others.
        num_samples: How many are drawn in an epoch; as many as there are items if null.
        replacement: Whether an item can be drawn more than once in an epoch.
    """

    def __init__(
        self,
        weights: list[float],
        num_samples: Annotated[int, AtLeast(1)] | None = None,
        *,
        replacement: bool = True,
    ) -> None:
        self.weights = np.asarray(weights, dtype=np.float64)
        is_good = np.isfinite(self.weights).all() and self.weights.min(initial=0) >= 0
        if not is_good or not self.weights.any():
            raise DataError(
                "sample: a weight is negative or no number, or none is above 0\n"
                "  give numbers from 0 on"
            )
        self.num_samples = num_samples
        self.replacement = replacement

    @override
    def count_drawn(self, length: int) -> int:
        return self.num_samples or length

    @override
    def draw(self, generator: np.random.Generator, length: int) -> NDArray[np.int64]:
        if len(self.weights) != length:
            raise DataError(
                f"sample: {len(self.weights)} weights for {length} items\n"
                "  give one weight for each item"
            )
        wanted, shares = self.num_samples or length, self.weights / self.weights.sum()
        if not self.replacement and wanted > np.count_nonzero(shares):
            raise DataError(
                f"sample: {wanted} items cannot be drawn without replacement from "
                f"{np.count_nonzero(shares)}\n  set replacement: true, or a smaller num_samples"
            )
        return generator.choice(length, size=wanted, replace=self.replacement, p=shares)


@final
class ShuffleBuffer(Pipe):
    """Items in random order, each drawn from a buffer that is filled up again.

    Args:
        size: Items in the buffer; a larger one mixes better and needs more memory.
    """

    gives = "stream"
    sets_order = True

    def __init__(self, size: Annotated[int, AtLeast(2)] = 1000) -> None:
        self.size = size

    @override
    def count(self, one_pass: Pass) -> int | None:
        return self.parent.count(one_pass)

    @override
    def iterate(self, one_pass: Pass, start: int = 0) -> Iterator[Item]:
        draw = random.Random(self.seed(one_pass))
        parent = self.parent
        if not parent.is_indexed:
            return islice(self._shuffled(parent.iterate(one_pass), draw), start, None)
        length = parent.count(one_pass)
        indices = self._shuffled(count() if length is None else range(length), draw)
        return parent.read_seeded(islice(indices, start, None), one_pass)

    def _shuffled(self, items: Iterable[Any], draw: random.Random) -> Iterator[Any]:
        waiting: list[Any] = []
        for item in items:
            if len(waiting) < self.size:
                waiting.append(item)
                continue
            place = draw.randrange(self.size)
            chosen, waiting[place] = waiting[place], item
            yield chosen
        draw.shuffle(waiting)
        yield from waiting


class _Positions(Pipe, ABC):
    """Items at positions with equal distances."""

    @abstractmethod
    def places(self, one_pass: Pass) -> tuple[int, int | None, int]:
        """Start, stop and step of the positions in the pipe before."""

    @override
    def count(self, one_pass: Pass) -> int | None:
        length, (start, stop, step) = self.parent.count(one_pass), self.places(one_pass)
        if length is not None:
            return len(range(length)[start:stop:step])
        return None if stop is None or not self.is_indexed else len(range(start, stop, step))

    def _position(self, number: int, one_pass: Pass) -> int:
        start, _, step = self.places(one_pass)
        return start + number * step

    @override
    def read(self, index: int, one_pass: Pass) -> Item:
        return self.parent.read(self._position(index, one_pass), one_pass)

    @override
    def read_many(self, indices: Sequence[int], one_pass: Pass) -> list[Item]:
        start, _, step = self.places(one_pass)
        return self.parent.read_many([start + index * step for index in indices], one_pass)

    @override
    def rows_of(self, index: int, one_pass: Pass) -> range | None:
        return self.parent.rows_of(self._position(index, one_pass), one_pass)

    @override
    def iterate(self, one_pass: Pass, start: int = 0) -> Iterator[Item]:
        if self.is_indexed:
            return super().iterate(one_pass, start)
        first, stop, step = self.places(one_pass)
        every = islice(self.parent.iterate(one_pass, first + start * step), 0, None, step)
        return every if stop is None else islice(every, len(range(first, stop, step)[start:]))


@final
class Slice(_Positions):
    """Some of the items by position, as in ``items[start:stop:step]``.

    Args:
        start: The first position.
        stop: The position where it ends; null: all.
        step: The distance between two positions.
    """

    def __init__(
        self,
        start: Annotated[int, AtLeast(0)] = 0,
        stop: Annotated[int, AtLeast(0)] | None = None,
        step: Annotated[int, AtLeast(1)] = 1,
    ) -> None:
        self.start, self.stop, self.every = start, stop, step
        self.ends = stop is not None

    @override
    def places(self, one_pass: Pass) -> tuple[int, int | None, int]:
        return self.start, self.stop, self.every


@final
class Take(_Positions):
    """The first items.

    Args:
        count: How many.
    """

    ends = True

    def __init__(self, count: Annotated[int, AtLeast(0)]) -> None:
        self.most = count

    @override
    def places(self, one_pass: Pass) -> tuple[int, int, int]:
        return 0, self.most, 1


@final
class Skip(_Positions):
    """All items but the first ones.

    Args:
        count: How many are left out.
    """

    def __init__(self, count: Annotated[int, AtLeast(0)]) -> None:
        self.first = count

    @override
    def places(self, one_pass: Pass) -> tuple[int, None, int]:
        return self.first, None, 1


@final
class SplitByWorker(_Positions):
    """Gives every worker its own items: the lines of the order that workers read at once.

    The items are dealt to ``parts``, each of which passes through the rest of the chain by itself;
    batches come from one after the other. A worker reads one or more parts, so the number of
    workers does not change the order, but ``parts`` does.

    Args:
        parts: The most workers that can be used; other numbers of workers should divide it.
    """

    splits = True

    def __init__(self, parts: Annotated[int, AtLeast(1)] = 8) -> None:
        self.parts = parts

    @override
    def vary_seed(self, seed: int, one_pass: Pass) -> int:
        return seed if one_pass.lane is None else mix_seed(seed, one_pass.lane)

    @override
    def places(self, one_pass: Pass) -> tuple[int, None, int]:
        return (0, None, 1) if one_pass.lane is None else (one_pass.lane, None, self.parts)


@final
class ShardByRank(_Positions):
    """Gives every process of torch.distributed its own items.

    For runs with ``engine.strategy: none``, loops of your own, and the training data of other runs
    if they are a stream without end. These give each process its samples of anything else.
    """

    shards = True

    @override
    def vary_seed(self, seed: int, one_pass: Pass) -> int:
        return mix_seed(seed, one_pass.rank)

    @override
    def places(self, one_pass: Pass) -> tuple[int, None, int]:
        return one_pass.rank, None, one_pass.world


@final
class Repeat(Pipe):
    """All items several times; each time with other random numbers.

    Args:
        times: How often; null: without end.
    """

    def __init__(self, times: Annotated[int, AtLeast(1)] | None = None) -> None:
        self.times = times
        self.repeats_forever = times is None

    @override
    def count(self, one_pass: Pass) -> int | None:
        length = self.parent.count(one_pass)
        return None if self.times is None or length is None else length * self.times

    @override
    def read(self, index: int, one_pass: Pass) -> Item:
        time, at = divmod(index, require_length(self.parent, one_pass))
        return self.parent.read(at, self._pass(time, one_pass))

    @override
    def rows_of(self, index: int, one_pass: Pass) -> range | None:
        return self.parent.rows_of(index % require_length(self.parent, one_pass), one_pass)

    @override
    def iterate(self, one_pass: Pass, start: int = 0) -> Iterator[Item]:
        if self.is_indexed:
            yield from super().iterate(one_pass, start)
            return
        for time in count() if self.times is None else range(self.times):
            one = self._pass(time, one_pass)
            seen, length = 0, self.parent.count(one)
            if length is not None and length <= start:
                start -= length
                continue
            for item in self.parent.iterate(one):
                seen += 1
                if seen > start:
                    yield item
            if not seen:
                return
            start = max(start - seen, 0)

    def _pass(self, time: int, one_pass: Pass) -> Pass:
        return one_pass._replace(seed=mix_seed(one_pass.seed, -1 - time)) if time else one_pass


@final
class Mix(Pipe):
    """Items of several chains, drawn by weight; it ends when the chain that is drawn has no more.

    Args:
        chains: Lists of pipes.
        weights: How often each chain is drawn, relative to the others; null: equally often.
    """

    is_source = True
    sets_order = True
    gives = "stream"

    def __init__(
        self, chains: Sequence[Chain | list[Any]], weights: list[float] | None = None
    ) -> None:
        from epochal.data.chain import Chain

        self.chains = [one if isinstance(one, Chain) else Chain(*one) for one in chains]
        self.weights = weights or [1.0] * len(chains)
        is_good = all(np.isfinite(one) and one >= 0 for one in self.weights)
        if len(self.weights) != len(self.chains) or not is_good or not any(self.weights):
            raise DataError(
                f"mix: {len(self.weights)} weights for {len(self.chains)} chains, one is negative "
                "or not finite, or none is above 0\n"
                "  give at least one chain, and one weight for each"
            )

    @override
    def prepare(self) -> None:
        for one in self.chains:
            one.prepare()

    @override
    def iterate(self, one_pass: Pass, start: int = 0) -> Iterator[Item]:
        draw = random.Random(self.seed(one_pass))
        numbers = range(len(self.chains))
        seen = [0] * len(self.chains)
        for _ in range(start):
            seen[draw.choices(numbers, self.weights)[0]] += 1
        opened = [
            one.last.iterate(one_pass._replace(seed=mix_seed(one_pass.seed, number)), seen[number])
            for number, one in enumerate(self.chains)
        ]
        while True:
            try:
                item = next(opened[draw.choices(numbers, self.weights)[0]])
            except StopIteration:
                return
            yield item
