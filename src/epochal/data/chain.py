"""Chains of pipes: from a list of pipes and functions to samples and batches by position."""

from __future__ import annotations

import copy
import inspect
from functools import partial
from itertools import islice
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

from epochal.data.pipe import Item, Pass, Pipe
from epochal.data.sources import Items, as_source
from epochal.data.transforms import Map, Stream
from epochal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from epochal.data.chain_loader import ChainLoader


@final
class Chain:
    """Pipes in order, connected: ``Chain(Jsonl("a.jsonl"), clean, Shuffle(), Batch(32))``.

    The first is a source, or an object with items. A function changes each item; a generator
    function gets an iterator of all items. An object with a method ``stream`` is used like a
    generator function, any other one that can be called like a function.

    Raises:
        DataError: The pipes do not fit together.
    """

    def __init__(self, *pipes: Any) -> None:  # noqa: ANN401 - pipes, functions and datasets
        if not pipes:
            raise DataError("data: a chain has no pipes\n  start it with a source")
        if isinstance(pipes[0], Chain):
            pipes = (*pipes[0].pipes, *pipes[1:])
        self.pipes: list[Pipe] = []
        """The pipes, each connected to the one before it."""

        self._is_prepared = False
        for pipe in pipes:
            self._add(pipe)

    def _add(self, value: object) -> None:
        number = len(self.pipes)
        pipe = copy.copy(as_pipe(value, is_first=not number))
        pipe.number = number
        if number:
            pipe.parent = self.pipes[-1]
        problem = find_misfit(pipe, self.pipes)
        if problem:
            what, hint = problem
            raise DataError(f"data: pipe {number + 1}, {type(pipe).__name__}, {what}\n  {hint}")
        self.pipes.append(pipe)

    def then(self, *pipes: object) -> Chain:
        """This chain with more pipes."""
        return Chain(*self.pipes, *pipes)

    @property
    def last(self) -> Pipe:
        """The pipe whose items the chain gives."""
        return self.pipes[-1]

    @property
    def is_indexed(self) -> bool:
        """Whether all items can be read by index."""
        return self.last.is_indexed

    @property
    def lanes(self) -> int:
        """The parts that ``split_by_worker`` makes; 1 if the chain has an index or no split."""
        parts = [getattr(pipe, "parts", 1) for pipe in self.pipes if pipe.splits]
        return parts[0] if parts and not self.is_indexed else 1

    @property
    def shards(self) -> bool:
        """Whether a pipe, or one of a mixed chain, gives each process its own items."""
        mixed = [one for pipe in self.pipes for one in getattr(pipe, "chains", ())]
        return any(pipe.shards for pipe in self.pipes) or any(one.shards for one in mixed)

    @property
    def is_endless(self) -> bool:
        """Whether a pass never ends."""
        endless = False
        for pipe in self.pipes:
            endless = (endless or pipe.repeats_forever) and not pipe.ends
        return endless

    def prepare(self) -> None:
        """Find files and indices, once and before workers start."""
        if not self._is_prepared:
            for pipe in self.pipes:
                pipe.prepare()
            self._is_prepared = True

    def passes(self, one_pass: Pass) -> list[Pass]:
        """The pass over each lane."""
        if self.is_indexed or not any(pipe.splits for pipe in self.pipes):
            return [one_pass]
        return [one_pass._replace(lane=lane) for lane in range(self.lanes)]

    def count(self, one_pass: Pass | None = None) -> int | None:
        """How many items a pass has; None if it is unknown or endless."""
        self.prepare()
        counts = [self.last.count(one) for one in self.passes(one_pass or Pass())]
        known = [one for one in counts if one is not None]
        return sum(known) if len(known) == len(counts) else None

    def __len__(self) -> int:
        length = self.count()
        if length is None:
            raise TypeError("the length of this chain is unknown or endless")
        return length

    def __getitem__(self, index: int) -> Item:
        if not self.is_indexed:
            raise TypeError("this chain has no index; put `materialise` at its end")
        self.prepare()
        length = self.count()
        if length is not None and not -length <= index < length:
            raise IndexError(f"{index} is not below {length}")
        at = index + (length or 0) if index < 0 else index
        return self.last.reader(Pass())(at)

    def __iter__(self) -> Iterator[Item]:
        return self.items()

    def items(self, *, seed: int = 0, start: int = 0) -> Iterator[Item]:
        """The items of a pass from a position on, in the order that a run with workers has."""
        self.prepare()
        return islice(_take_turns(self, Pass(seed)), start, None)

    def loader(self, **options: Any) -> ChainLoader:  # noqa: ANN401 - those of LoaderOptions
        """A loader of the batches, with the options that ``data.<split>`` has in a config."""
        from epochal.data.loader import LoaderOptions, build_chain_loader

        return build_chain_loader(self, LoaderOptions(**options), split="", device="cpu")

    @override
    def __repr__(self) -> str:
        return f"Chain({', '.join(type(pipe).__name__ for pipe in self.pipes)})"


def chain(*pipes: Any) -> Chain:  # noqa: ANN401 - pipes, functions and datasets
    """Pipes, functions and datasets as one chain."""
    return Chain(*pipes)


def _take_turns(one: Chain, one_pass: Pass) -> Iterator[Item]:
    """One item of each lane after the other."""
    waiting = [one.last.iterate(lane) for lane in one.passes(one_pass)]
    while waiting:
        left = []
        for items in waiting:
            for item in islice(items, 1):
                yield item
                left.append(items)
        waiting = left


def as_pipe(value: object, *, is_first: bool = False) -> Pipe:
    """The pipe that a value stands for."""
    if isinstance(value, Pipe):
        return value
    if is_first:
        has_items = hasattr(value, "__iter__") or hasattr(value, "__getitem__")
        return as_source(_Generated(value) if callable(value) and not has_items else value)
    if inspect.isclass(value):
        raise DataError(
            f"data: {value.__name__} is a class, not an object of it\n  write {value.__name__}()"
        )
    stream = getattr(value, "stream", None)
    if callable(stream):
        return Stream(stream)
    if callable(value):
        return Stream(value) if _is_generator(value) else Map(value)
    raise DataError(
        f"data: a {type(value).__name__} is no pipe\n"
        "  give a pipe, a function, or an object with __call__ or stream"
    )


def _is_generator(value: object) -> bool:
    while isinstance(value, partial):
        value = value.func
    return inspect.isgeneratorfunction(value)


@final
class _Generated:
    """What a function without arguments yields, each time that it is iterated."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function

    def __iter__(self) -> Iterator[Any]:
        return iter(self.function())


def find_misfit(pipe: Pipe, before: list[Pipe]) -> tuple[str, str] | None:
    """Why a pipe cannot come after others, and what to do; None if it can."""
    if not before:
        return None if pipe.is_source else ("is no source", "start with a source or a list")
    if pipe.is_source:
        return "is a source, but not the first", "join sources with mix"
    if pipe.needs_index and not before[-1].is_indexed:
        return (
            f"needs an index, and {type(before[-1]).__name__} gives a stream",
            "use shuffle_buffer to shuffle a stream, or put materialise before it",
        )
    if pipe.makes_batches and any(one.makes_batches for one in before):
        return "makes batches of batches", "remove one of the two"
    if pipe.keeps_items and any(one.splits or one.shards for one in before):
        return "keeps the items of all parts", "put it before the pipe that splits them"
    if pipe.splits and any(one.splits for one in before):
        return "splits what is split already", "remove one of the two"
    return None


def refuse_unportable(one: Chain, key: str) -> None:
    """Refuse pipes that cannot be sent to a worker, with the attribute that is the reason."""
    for number, pipe in enumerate(one.pipes):
        for name, value in pipe.__getstate__().items():
            if name == "parent":
                continue
            few = value[:100] if isinstance(pipe, Items) and isinstance(value, list) else value
            for path, reason in _unportable(few, name):
                raise DataError(
                    f"{key}.pipes.{number}: {type(pipe).__name__}.{path} cannot be sent to a "
                    f"worker: {reason}\n"
                    "  open it when the first item is read, use a function of a module, "
                    "or set workers: 0"
                )


def _unportable(value: Any, path: str) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - of any type
    """The innermost attribute that cannot be pickled, and why."""
    try:
        ForkingPickler.dumps(value)
    except Exception as error:
        owner = getattr(value, "__self__", value)
        for name, inner in getattr(owner, "__dict__", {}).items():
            found = list(_unportable(inner, f"{path}.{name}"))
            if found:
                yield found[0]
                return
        yield path, str(error)
