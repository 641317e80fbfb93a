"""The interface of pipes, the small steps of a chain, and how they read items under seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, count, islice
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeVar

from typing_extensions import override

from epochal.config.bounds import guard_call
from epochal.engine.feed.host_generators import HostGenerators, mix_seed
from epochal.errors import DataError

Item = Any  # a sample or a batch, of any type
ItemT = TypeVar("ItemT")
Call = tuple[int, Callable[[], ItemT]]  # with the number that gives its seed

_NOTE = "data: while reading item"
_CHUNK = 32  # items that are watched for draws at once


class Pass(NamedTuple):
    """One pass over a chain; with the position of an item it determines the item."""

    seed: int = 0
    lane: int | None = None
    """The part of ``split_by_worker`` that is read; None if the chain is read by index."""

    rank: int = 0
    world: int = 1
    """The process, and the number of processes, for ``shard_by_rank``."""

    rows: tuple[int, int] | None = None
    """The first and the end of the samples of a batch that are read; None: all of them."""

    divides_batches: bool = False
    """Whether each process makes its part of every batch from its own items."""

    is_watched: bool = False
    """Whether draws of random numbers are noticed already, so that pipes need not watch again."""


class Pipe:
    """One step of a chain: a source of items, or a change of those of the pipe before it.

    A pipe that can be read by index implements ``read``, any other one ``iterate``. Its items
    depend on the pass and on their position only. Class attributes say what it needs and gives;
    ``epochal check`` reads them from the source.
    """

    is_source: ClassVar[bool] = False
    """Whether it is the first of a chain."""

    gives: ClassVar[Literal["same", "indexed", "stream"]] = "same"
    """Whether its items can be read by index; ``same``: as those of the pipe before it."""

    needs_index: ClassVar[bool] = False
    """Whether the pipe before it must be read by index."""

    sets_order: ClassVar[bool] = False
    """Whether it chooses the order, so that the loader does not shuffle."""

    makes_batches: ClassVar[bool] = False
    """Whether its items are batches."""

    splits: ClassVar[bool] = False
    """Whether it gives each worker its share."""

    shards: ClassVar[bool] = False
    """Whether it gives each process of a distributed run its share."""

    keeps_items: ClassVar[bool] = False
    """Whether it reads the items before it once, for all epochs, workers and processes."""

    repeats_forever = False
    """Whether it gives items without end."""

    ends = False
    """Whether it ends also if the pipe before does not."""

    parent: Pipe
    """The pipe before it, set by the chain; a source has none."""

    number = 0
    """Its place in the chain."""

    now_reading: ClassVar[list[int] | memoryview[int]] = [0, 0]
    """The number of the pipe that reads, and its item; workers store them where they are found
    after their death."""

    def __new__(cls, *args: Any, **options: Any) -> Self:  # noqa: ANN401 - of the constructor
        """A pipe; its arguments must keep their bounds, as those in a config."""
        guard_call(cls.__init__, cls.__name__, None, *args, **options)
        return super().__new__(cls)

    @property
    def is_indexed(self) -> bool:
        """Whether items can be read by index."""
        return self.gives == "indexed" or (self.gives == "same" and self.parent.is_indexed)

    def prepare(self) -> None:
        """Read what is needed before the first item, such as a list of files; called once."""

    def count(self, one_pass: Pass) -> int | None:
        """How many items a pass has; None if it is unknown or endless."""
        return None if self.gives == "stream" else self.parent.count(one_pass)

    def read(self, index: int, one_pass: Pass) -> Item:
        """The item at an index."""
        raise NotImplementedError(f"{type(self).__name__} is not read by index")

    def read_many(self, indices: Sequence[int], one_pass: Pass) -> list[Item]:
        """The items at some indices; a pipe overrides it if that is faster than one by one."""
        now = self.now_reading
        now[0] = self.number
        return [self.read(index, one_pass) for now[1], index in zip(indices, indices, strict=True)]

    def rows_of(self, index: int, one_pass: Pass) -> range | None:
        """The samples of a batch; None if it can only be read as a whole."""
        return None

    def iterate(self, one_pass: Pass, start: int = 0) -> Iterator[Item]:
        """The items from a position on, in order."""
        length = self.count(one_pass)
        positions = count(start) if length is None else range(start, length)
        return self.read_seeded(positions, one_pass)

    def reader(self, one_pass: Pass) -> Callable[[int], Item]:
        """Reads the item at an index under its own seed; nothing is seeded unless it draws."""
        generators, seed = self.generators, self.seed(one_pass)
        watched = one_pass._replace(is_watched=True)

        def read(index: int) -> Item:
            while not self._is_random:
                states = generators.begin(seed)
                if states is None:
                    break
                item, error = None, None
                try:
                    item = self.read(index, one_pass if self._is_parent_random else watched)
                except Exception as caught:
                    error = caught
                if generators.end(states):
                    if error is not None:
                        raise self.noted(error, index) from error.__cause__
                    return item
                vars(self)["_is_random" if self._is_parent_random else "_is_parent_random"] = True
            (item,) = self.read_seeded((index,), one_pass)
            return item

        return read

    def read_seeded(self, indices: Iterable[int], one_pass: Pass) -> Iterator[Item]:
        """The items at some indices, each read under its own seed."""
        calls = ((index, partial(self.read, index, one_pass)) for index in indices)
        return self.run_seeded(calls, one_pass)

    def read_group(self, indices: Sequence[int], one_pass: Pass) -> list[Item]:
        """The items of a batch, each as if read under its own seed; at once if none draws."""
        if one_pass.is_watched:
            try:
                return self.read_many(indices, one_pass)
            except Exception:  # read again one by one, to say which item it was
                return list(self.read_seeded(indices, one_pass._replace(is_watched=False)))
        states = None if self._is_random else self.generators.begin(self.seed(one_pass))
        if states is not None:
            try:
                items = self.read_many(indices, one_pass)
            except Exception:  # read again one by one, to say which item it was
                items = None
            if self.generators.end(states) and items is not None:
                return items
        return list(self.read_seeded(indices, one_pass))

    def run_seeded(
        self,
        calls: Iterable[Call[ItemT]],
        one_pass: Pass,
        *,
        reopen: Callable[[int], Iterator[Call[ItemT]]] | None = None,
    ) -> Iterator[ItemT]:
        """The results of numbered calls, each made under a seed of its number.

        Until one of them draws random numbers, nothing is seeded. The calls around the first draw
        are made again; ``reopen`` gives all calls from one on, if their arguments may have changed.
        """
        seed, made, calls = self.seed(one_pass), 0, iter(calls)
        while not self._is_random:
            states = self.generators.begin(seed)
            if states is None:
                break
            chunk: list[Call[ItemT]] = []
            results, error = self._call_all(islice(calls, _CHUNK), chunk)
            if not self.generators.end(states):
                calls = chain(chunk, calls) if reopen is None else reopen(made)
                break
            yield from results
            if error is not None:
                raise self.noted(error, chunk[len(results)][0] if chunk[len(results) :] else None)
            if len(chunk) < _CHUNK:
                return
            made += len(chunk)
        vars(self)["_is_random"] = True
        now = self.now_reading
        for index, call in calls:
            now[0], now[1] = self.number, index
            try:
                with self.generators.seeded(mix_seed(seed, index)):
                    result = call()
            except Exception as error:
                raise self.noted(error, index) from error.__cause__
            yield result

    def _call_all(
        self, calls: Iterable[Call[ItemT]], made: list[Call[ItemT]]
    ) -> tuple[list[ItemT], Exception | None]:
        """The results up to the first error, and that error; ``made`` gets the calls."""
        results: list[ItemT] = []
        now = self.now_reading
        try:
            for one in calls:
                made.append(one)
                now[0], now[1] = self.number, one[0]
                results.append(one[1]())
        except Exception as error:
            return results, error
        return results, None

    def noted(self, error: Exception, index: int | None) -> Exception:
        """The error, with the item that was read, unless a pipe before has said it."""
        has_note = any(note.startswith(_NOTE) for note in getattr(error, "__notes__", ()))
        if index is not None and not has_note:
            error.add_note(f"{_NOTE} {index} of pipe {self.number + 1}, {type(self).__name__}")
        return error

    def seed_at(self, number: int, one_pass: Pass) -> int:
        """The seed of one of its items."""
        return mix_seed(self.seed(one_pass), number)

    def seed(self, one_pass: Pass) -> int:
        """A seed for this pipe; lanes and ranks differ only behind the pipe that splits them."""
        seed = mix_seed(one_pass.seed, self.number)
        pipe = getattr(self, "parent", None)
        while pipe is not None:
            seed = pipe.vary_seed(seed, one_pass)
            pipe = getattr(pipe, "parent", None)
        return seed

    def vary_seed(self, seed: int, one_pass: Pass) -> int:
        """The seed of the pipes behind it, which differs between parts that it makes."""
        return seed

    _is_random = False
    """Whether reading an item was seen to draw random numbers, besides those of pipes before."""

    _is_parent_random = False
    """Whether it or a pipe before it was."""

    @property
    def generators(self) -> HostGenerators:
        """The global random generators of this process."""
        own: HostGenerators | None = vars(self).get("_host_generators")
        if own is None:
            own = vars(self)["_host_generators"] = HostGenerators()
        return own

    @override
    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_host_generators"}


def require_length(pipe: Pipe, one_pass: Pass) -> int:
    """The number of items; DataError if it is unknown."""
    length = pipe.count(one_pass)
    if length is None:
        raise DataError(
            f"{type(pipe).__name__}: its number of items is unknown or endless\n"
            "  put `take` or `materialise` after it"
        )
    return length
