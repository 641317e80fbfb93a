"""The generators that everybody draws from, put aside while somebody reads data."""

from __future__ import annotations

import ctypes
import random
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, final

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

_MASK = (1 << 64) - 1
_WORDS = 624  # of the state of a Mersenne twister
_STATE_BYTES = 4 * _WORDS + 4  # its words, and the place of the next one


def mix(seed: int, number: int) -> int:
    """64 bits that depend on both numbers and look like no others; splitmix64."""
    z = (seed + (number + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def seed_host(seed: int) -> None:
    """Seed the generators of Python, numpy and torch with 64 bits; devices keep theirs."""
    random.seed(seed)
    numpy = _find_numpy()
    if numpy is not None:
        # Other bits than torch takes: the two have the same algorithm.
        numpy.seed(seed >> 32)
    # Not torch.manual_seed, which takes a hundred times as long to reach every device.
    torch.default_generator.manual_seed(seed)


class Numpy(NamedTuple):
    """The state of numpy's global generator."""

    memory: bytes
    """What the generator has in memory; empty if that is not laid out as expected."""

    full: tuple[Any, ...]
    """As numpy gives it."""

    @property
    def has_spare(self) -> bool:
        """Whether the next normal number lies ready, to be had without a move of the rest."""
        return bool(self.full[3])


class States(NamedTuple):
    """The states of the three generators of the host."""

    python: tuple[Any, ...]
    numpy: Numpy | None
    torch: Tensor

    def equals(self, other: States) -> bool:
        """Whether nobody drew from one to the other."""
        return (
            self.python == other.python
            and _are_equal(self.numpy, other.numpy)
            and torch.equal(self.torch, other.torch)
        )


@final
class Ambient:
    """Takes the states of the generators, and puts them back.

    To get or to set its state numpy needs 30 µs, ten times as long as the others together. So
    its memory is looked at, and numpy is asked only if that is another than the last time.
    """

    def __init__(self) -> None:
        self._latest: Numpy | None = None

    def take(self) -> States:
        """The states as they are now."""
        return States(random.getstate(), self._take_numpy(), torch.default_generator.get_state())

    def put(self, states: States) -> None:
        """Bring the generators into these states."""
        random.setstate(states.python)
        torch.default_generator.set_state(states.torch)
        numpy = _find_numpy()
        if states.numpy is not None and numpy is not None:
            self._put_numpy(states.numpy, numpy)

    @contextmanager
    def apart(self, seed: int) -> Iterator[None]:
        """Seed the generators for a block; afterwards they are as before."""
        states = self.take()
        try:
            seed_host(seed)
            yield
        finally:
            self.put(states)

    def _take_numpy(self) -> Numpy | None:
        numpy = _find_numpy()
        if numpy is None:
            return None
        memory = ctypes.string_at(_address(numpy), _STATE_BYTES)
        latest = self._latest
        # With a spare number in store, a draw could leave the memory as it is.
        if latest is not None and memory == latest.memory and not latest.has_spare:
            return latest
        full = numpy.get_state()
        is_known = memory == full[1].tobytes() + int(full[2]).to_bytes(4, sys.byteorder)
        self._latest = Numpy(memory if is_known else b"", full)
        return self._latest

    def _put_numpy(self, state: Numpy, numpy: Any) -> None:  # noqa: ANN401 - as below
        if not state.memory or state.has_spare:
            numpy.set_state(state.full)
        elif ctypes.string_at(_address(numpy), _STATE_BYTES) != state.memory:
            numpy.seed(0)  # takes away a spare number
            ctypes.memmove(_address(numpy), state.memory, _STATE_BYTES)
        self._latest = state


def _find_numpy() -> Any:  # noqa: ANN401 - numpy.random, or None
    """The global generator of numpy, if it was imported and has not been exchanged."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    is_usual = type(numpy.random.get_bit_generator()).__name__ == "MT19937"
    return numpy.random if is_usual else None


def _address(numpy: Any) -> int:  # noqa: ANN401 - same
    address: int = numpy.get_bit_generator().ctypes.state_address
    return address


def _are_equal(one: Numpy | None, other: Numpy | None) -> bool:
    if one is None or other is None:
        return one is other  # imported in between: who did that is likely to draw from it
    return one is other or (
        one.full[1].tobytes() == other.full[1].tobytes() and one.full[2:] == other.full[2:]
    )
