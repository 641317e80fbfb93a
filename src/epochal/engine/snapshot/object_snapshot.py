"""What Python code can change of task, store, model and loss: kept aside, and put back in place."""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING, final

import numpy as np
from torch import nn

from epochal.engine.snapshot.run_objects import (
    BYTES,
    attributes,
    generator_state,
    is_plain_object,
    walk,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from epochal.engine.run import Run
    from epochal.engine.snapshot.run_objects import Value

_NOTHING = object()


@final
class PlainState:
    """What Python code can change of a run's task, store, model and loss, to be put back later.

    Args:
        run: Whose parts are kept.
    """

    def __init__(self, run: Run) -> None:
        found = (_keeper(value, is_root=value is run.task) for _, value in walk(run))
        self._keepers = [keeper for keeper in found if keeper is not None]

    def restore(self) -> None:
        """Put everything back in place; what was added since is taken away."""
        for put_back in self._keepers:
            put_back()


def _keeper(value: Value, *, is_root: bool) -> Callable[[], None] | None:
    """What puts the contents of a value back; None if they cannot change or cannot be seen."""
    if generator_state(value) is not None:
        return _generator_keeper(value)
    for kinds, keeper in _KEEPERS:
        if isinstance(value, kinds):
            return keeper(value)
    return _object_keeper(value) if is_root or is_plain_object(value) else None


def _generator_keeper(value: Value) -> Callable[[], None]:
    state = generator_state(value)
    return lambda: set_generator_state(value, state)


def set_generator_state(value: Value, state: Value) -> None:
    """Put a generator into a state that ``generator_state`` gave."""
    if isinstance(value, random.Random):
        value.setstate(state)
    elif isinstance(value, np.random.Generator):
        value.bit_generator.state = state
    else:
        value.set_state(state)


def _array_keeper(value: Value) -> Callable[[], None] | None:
    if value.nbytes > BYTES or not value.flags.writeable:
        return None
    kept = value.copy()
    return lambda: np.copyto(value, kept)


def _sequence_keeper(value: Value) -> Callable[[], None]:
    kept = list(value)

    def put_back() -> None:
        if not _are_same(value, kept):
            value.clear()
            value.extend(kept)

    return put_back


def _set_keeper(value: set[Value]) -> Callable[[], None]:
    kept = set(value)

    def put_back() -> None:
        if value != kept:
            value.clear()
            value.update(kept)

    return put_back


def _dict_keeper(value: dict[Value, Value]) -> Callable[[], None]:
    kept = list(value.items())

    def put_back() -> None:
        now = list(value.items())
        if not all(_are_same(here, there) for here, there in zip(now, kept, strict=False)) or (
            len(now) != len(kept)
        ):
            value.clear()
            for name, item in kept:
                value[name] = item

    return put_back


def _object_keeper(value: object) -> Callable[[], None]:
    kept = attributes(value)

    def put_back() -> None:
        now = attributes(value)
        for name in now.keys() - kept.keys():
            object.__delattr__(value, name)
        for name, item in kept.items():
            if now.get(name, _NOTHING) is not item:
                object.__setattr__(value, name, item)

    return put_back


def _are_same(here: Value, there: Value) -> bool:
    """Whether two sequences hold the very same objects."""
    return len(here) == len(there) and all(a is b for a, b in zip(here, there, strict=True))


_KEEPERS: tuple[tuple[type | tuple[type, ...], Callable[[Value], Callable[[], None] | None]], ...]
_KEEPERS = (
    (np.ndarray, _array_keeper),
    ((list, deque), _sequence_keeper),
    (dict, _dict_keeper),
    (set, _set_keeper),
    (nn.Module, _object_keeper),
)
