"""Pipes that change items: map, filter, flat_map, and functions over the whole stream."""

from __future__ import annotations

from abc import ABC
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

from epochal.data.pipe import Call, Item, Pass, Pipe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class _Calls(Pipe, ABC):
    """Calls a function.

    Args:
        function: Gets an item, or an iterator of items.
        options: More keyword arguments of the function.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any] | None = None) -> None:
        self.function = partial(function, **options) if options else function


@final
class Map(_Calls):
    """Each item, changed by a function.

    Args:
        function: Gets an item and returns another one.
        options: More keyword arguments of the function.
    """

    @override
    def read(self, index: int, one_pass: Pass) -> Item:
        try:
            item = self.parent.read(index, one_pass)
            self.now_reading[0], self.now_reading[1] = self.number, index
            return self.function(item)
        except Exception as error:  # a pipe behind it may count items in another order
            raise self.noted(error, index) from error.__cause__

    @override
    def read_many(self, indices: Sequence[int], one_pass: Pass) -> list[Item]:
        items = self.parent.read_many(indices, one_pass)
        function, now = self.function, self.now_reading
        now[0] = self.number
        return [function(item) for now[1], item in zip(indices, items, strict=True)]

    @override
    def iterate(self, one_pass: Pass, start: int = 0) -> Iterator[Item]:
        if self.is_indexed:
            return super().iterate(one_pass, start)
        return _apply(self, self.function, one_pass, start)


def _apply(
    pipe: Pipe, function: Callable[[Item], Any], one_pass: Pass, start: int
) -> Iterator[Any]:
    """What a function returns for each item of the pipe before, called under a seed."""

    def calls(first: int) -> Iterator[Call[Any]]:
        items = pipe.parent.iterate(one_pass, start + first)
        return ((at, partial(function, item)) for at, item in enumerate(items, start + first))

    return pipe.run_seeded(calls(0), one_pass, reopen=calls)


@final
class Filter(_Calls):
    """The items for which a function returns True.

    Args:
        function: Gets an item.
        options: More keyword arguments of the function.
    """

    gives = "stream"

    @override
    def iterate(self, one_pass: Pass, start: int = 0) -> Iterator[Item]:
        found = _apply(self, self._keep, one_pass, 0)
        return islice((item for is_kept, item in found if is_kept), start, None)

    def _keep(self, item: Item) -> tuple[bool, Item]:
        return bool(self.function(item)), item


@final
class FlatMap(_Calls):
    """All items that a function makes of each item, one after the other.

    Args:
        function: Gets an item, and returns or yields any number of items.
        options: More keyword arguments of the function.
    """

    gives = "stream"

    @override
    def iterate(self, one_pass: Pass, start: int = 0) -> Iterator[Item]:
        parts = _apply(self, lambda item: list(self.function(item)), one_pass, 0)
        return islice((item for part in parts for item in part), start, None)


@final
class Stream(_Calls):
    """What a generator function yields while it reads the items.

    A run that resumes calls it with the first item again, and discards what it has seen.

    Args:
        function: Gets an iterator of items, and yields items.
        options: More keyword arguments of the function.
    """

    gives = "stream"

    @override
    def iterate(self, one_pass: Pass, start: int = 0) -> Iterator[Item]:
        return islice(seeded_stream(self, self._open, one_pass), start, None)

    def _open(self, one_pass: Pass) -> Iterator[Item]:
        return iter(self.function(self.parent.iterate(one_pass)))


_END = object()


def seeded_stream(
    pipe: Pipe, open_items: Callable[[Pass], Iterator[Item]], one_pass: Pass
) -> Iterator[Item]:
    """The items of an iterator of the user's, each of them read under its own seed."""

    def calls(first: int) -> Iterator[Call[Any]]:
        items = open_items(one_pass)
        number = -1
        is_over = False

        def step() -> Item:
            nonlocal is_over
            item = next(items, _END)
            is_over = item is _END
            return item

        while not is_over:
            number += 1
            if number < first:
                with pipe.generators.seeded(pipe.seed_at(number, one_pass)):
                    step()
            else:
                yield number, step

    found = pipe.run_seeded(calls(0), one_pass, reopen=calls)
    for item in found:
        if item is _END:
            return
        yield item
