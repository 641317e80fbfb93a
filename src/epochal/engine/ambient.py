"""The generators that everybody draws from, put aside while somebody reads data."""

from __future__ import annotations

import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np
import torch
from numpy.random.mtrand import get_bit_generator
from torch import Tensor
from typing_extensions import override

from epochal.engine.glimpse import NUMPY, PYTHON, TORCH, find_glimpse, is_usual

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.engine.glimpse import Look

_MASK = (1 << 64) - 1


def mix(seed: int, number: int) -> int:
    """64 bits that depend on both numbers and look like no others; splitmix64."""
    z = (seed + (number + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def seed_host(seed: int) -> None:
    """Seed the generators of Python, numpy and torch with 64 bits; devices keep theirs."""
    random.seed(seed)
    if is_usual(get_bit_generator()):
        # Other bits than torch takes: the two have the same algorithm.
        np.random.seed(seed >> 32)
    # Not torch.manual_seed, which takes a hundred times as long to reach every device.
    torch.default_generator.manual_seed(seed)


class States(NamedTuple):
    """The states of the three generators of the host."""

    python: tuple[Any, ...]
    numpy: Any
    """None if somebody gave numpy another algorithm, which is left alone."""

    torch: Tensor
    look: Look
    """What was seen of them in memory."""

    def equals(self, other: States) -> bool:
        """Whether nobody drew from one to the other."""
        one, two = self.numpy, other.numpy
        if one is None or two is None:
            is_same = one is two
        else:
            is_same = one[1].tobytes() == two[1].tobytes() and one[2:] == two[2:]
        return is_same and self.python == other.python and torch.equal(self.torch, other.torch)


@final
class Ambient:
    """Takes the states of the generators, and puts them back.

    Hardly anybody draws from them between two batches. So their memory is looked at, and those are
    asked for their state of which something else is seen than the last time.
    """

    def __init__(self) -> None:
        self._glimpse = find_glimpse()
        self._latest = States((), None, torch.empty(0), (None,) * 5)
        self._own_seed = 0

    @override
    def __reduce__(self) -> tuple[type[Ambient], tuple[()]]:
        return Ambient, ()  # another process has its own memory

    def take(self) -> States:
        """The states as they are now."""
        look, latest = self._glimpse.look(), self._latest
        if look != latest.look:
            latest = self._latest = self._ask(look, latest)
        return latest

    def put(self, states: States) -> None:
        """Bring the generators into these states."""
        look, kept = self._glimpse.look(), states.look
        if look[PYTHON] != kept[PYTHON]:
            random.setstate(states.python)
        if look[NUMPY] != kept[NUMPY] and states.numpy is not None:
            self._put_numpy(states.numpy)
        if look[TORCH] != kept[TORCH]:
            torch.default_generator.set_state(states.torch)
        self._latest = states

    def begin(self, seed: int) -> States | None:
        """Take the states and give torch a seed, which can be asked for without a draw.

        None, and nothing is changed, if draws could not be seen.
        """
        states, place = self.take(), self._glimpse.seed
        if place is None:
            return None
        self._own_seed, place.value = place.value, seed
        return states

    def end(self, seed: int, states: States) -> bool:
        """Bring the generators into the states that ``begin`` gave; whether nobody had drawn."""
        place = self._glimpse.seed
        if place is not None and place.value == seed:
            place.value = self._own_seed
            if self._glimpse.look() == states.look:
                return True
        self.put(states)
        return False

    @contextmanager
    def apart(self, seed: int) -> Iterator[None]:
        """Seed the generators for a block; afterwards they are as before."""
        states = self.take()
        try:
            seed_host(seed)
            yield
        finally:
            self.put(states)

    def _put_numpy(self, state: Any) -> None:  # noqa: ANN401 - as numpy gives it
        generator = get_bit_generator()
        if generator is self._glimpse.numpy:
            self._glimpse.put_numpy(state)
        elif is_usual(generator):
            np.random.set_state(state)

    def _ask(self, look: Look, latest: States) -> States:
        if get_bit_generator() is not self._glimpse.numpy:
            self._glimpse = find_glimpse()
            look = self._glimpse.look()
        known = latest.look
        return States(
            latest.python if look[PYTHON] == known[PYTHON] else random.getstate(),
            latest.numpy if look[NUMPY] == known[NUMPY] else _ask_numpy(),
            latest.torch if look[TORCH] == known[TORCH] else torch.default_generator.get_state(),
            look,
        )


def _ask_numpy() -> Any:  # noqa: ANN401 - as numpy gives it
    return np.random.get_state() if is_usual(get_bit_generator()) else None
