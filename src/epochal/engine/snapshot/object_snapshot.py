"""What Python code can change of task, store, model and loss: kept aside, and put back in place."""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING, final

import numpy as np
from torch import nn

from epochal.engine.snapshot.run_objects import (
    MAX_ARRAY_BYTES,
    is_plain_object,
    read_generator_state,
    read_own_attributes,
    walk_run_objects,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from epochal.engine.run import Run
    from epochal.engine.snapshot.run_objects import Value

_NOTHING = object()


@final
class ObjectSnapshot:
    """What Python code can change of a run's task, store, model and loss, to be put back later.

    Args:
        run: Whose parts are kept.
    """

    def __init__(self, run: Run) -> None:
        found = (_restorer(value, is_root=value is run.task) for _, value in walk_run_objects(run))
        self._restorers = [keeper for keeper in found if keeper is not None]

    def restore(self) -> None:
        """Put everything back in place; what was added since is taken away."""
        for put_back in self._restorers:
            put_back()


def _restorer(value: Value, *, is_root: bool) -> Callable[[], None] | None:
    """What puts the contents of a value back; None if they cannot change or cannot be seen."""
    if read_generator_state(value) is not None:
        return _generator_restorer(value)
    for kinds, keeper in _RESTORERS:
        if isinstance(value, kinds):
            return keeper(value)
    return _object_restorer(value) if is_root or is_plain_object(value) else None


def _generator_restorer(value: Value) -> Callable[[], None]:
    state = read_generator_state(value)
    return lambda: set_generator_state(value, state)


def set_generator_state(value: Value, state: Value) -> None:
    """Put a generator into a state that ``read_generator_state`` gave."""
    if isinstance(value, random.Random):
        value.setstate(state)
    elif isinstance(value, np.random.Generator):
        value.bit_generator.state = state
    else:
        value.set_state(state)


def _array_restorer(value: Value) -> Callable[[], None] | None:
    if value.nbytes > MAX_ARRAY_BYTES or not value.flags.writeable:
        return None
    kept = value.copy()
    return lambda: np.copyto(value, kept)


def _sequence_restorer(value: Value) -> Callable[[], None]:
    kept = list(value)

    def put_back() -> None:
        if not _hold_same_objects(value, kept):
            value.clear()
            value.extend(kept)

    return put_back


def _set_restorer(value: set[Value]) -> Callable[[], None]:
    kept = set(value)

    def put_back() -> None:
        if value != kept:
            value.clear()
            value.update(kept)

    return put_back


def _dict_restorer(value: dict[Value, Value]) -> Callable[[], None]:
    kept = list(value.items())

    def put_back() -> None:
        now = list(value.items())
        if not all(
            _hold_same_objects(here, there) for here, there in zip(now, kept, strict=False)
        ) or (len(now) != len(kept)):
            value.clear()
            for name, item in kept:
                value[name] = item

    return put_back


def _object_restorer(value: object) -> Callable[[], None]:
    kept = read_own_attributes(value)

    def put_back() -> None:
        now = read_own_attributes(value)
        for name in now.keys() - kept.keys():
            object.__delattr__(value, name)
        for name, item in kept.items():
            if now.get(name, _NOTHING) is not item:
                object.__setattr__(value, name, item)

    return put_back


def _hold_same_objects(here: Value, there: Value) -> bool:
    """Whether two sequences hold the very same objects."""
    return len(here) == len(there) and all(a is b for a, b in zip(here, there, strict=True))


_RESTORERS: tuple[tuple[type | tuple[type, ...], Callable[[Value], Callable[[], None] | None]], ...]
_RESTORERS = (
    (np.ndarray, _array_restorer),
    ((list, deque), _sequence_restorer),
    (dict, _dict_restorer),
    (set, _set_restorer),
    (nn.Module, _object_restorer),
)
