"""The generators that everybody draws from, put aside while somebody reads data."""

from __future__ import annotations

import ctypes
import random
import struct
import sys
from _random import Random as _Twister
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, final

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

_MASK = (1 << 64) - 1
_WORDS = 624  # of the state of a Mersenne twister
_STATE_BYTES = 4 * _WORDS + 4  # its words, and the place of the next one
_HEAD = object.__basicsize__  # where an object's own memory begins


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


class Python(NamedTuple):
    """The state of Python's global generator."""

    memory: bytes
    """What the generator has in memory; empty if that is not laid out as expected."""

    full: tuple[Any, ...]
    """As Python gives it."""


class Numpy(NamedTuple):
    """The state of numpy's global generator, in the same way."""

    memory: bytes
    full: tuple[Any, ...]

    @property
    def has_spare(self) -> bool:
        """Whether the next normal number lies ready, to be had without a move of the rest."""
        return bool(self.full[3])


class States(NamedTuple):
    """The states of the three generators of the host."""

    python: Python
    numpy: Numpy | None
    torch: Tensor

    def equals(self, other: States) -> bool:
        """Whether nobody drew from one to the other."""
        return (
            (self.python is other.python or self.python.full == other.python.full)
            and _are_equal(self.numpy, other.numpy)
            and _read(self.torch) == _read(other.torch)
        )


@final
class Ambient:
    """Takes the states of the generators, and puts them back.

    Asked for its state, Python needs 8 µs and numpy 30, and hardly anybody draws from them between
    two batches. So their memory is looked at, and they are asked only if it is another one
    than the last time.
    """

    def __init__(self) -> None:
        self._python: Python | None = None
        self._numpy: Numpy | None = None

    def take(self) -> States:
        """The states as they are now."""
        return States(self._take_python(), self._take_numpy(), torch.default_generator.get_state())

    def put(self, states: States) -> None:
        """Bring the generators into these states."""
        torch.default_generator.set_state(states.torch)
        python = states.python
        if not python.memory or _read_python() != (python.memory, python.full[2]):
            random.setstate(python.full)
        self._python = python
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

    def _take_python(self) -> Python:
        memory, spare = _read_python()
        latest = self._python
        if latest is not None and memory and (memory, spare) == (latest.memory, latest.full[2]):
            return latest
        full = random.getstate()
        words = struct.pack(f"={_WORDS + 1}I", full[1][-1], *full[1][:-1])
        self._python = Python(memory if memory == words else b"", full)
        return self._python

    def _take_numpy(self) -> Numpy | None:
        numpy = _find_numpy()
        if numpy is None:
            return None
        memory = ctypes.string_at(_address(numpy), _STATE_BYTES)
        latest = self._numpy
        # With a spare number in store, a draw could leave the memory as it is.
        if latest is not None and memory == latest.memory and not latest.has_spare:
            return latest
        full = numpy.get_state()
        is_known = memory == full[1].tobytes() + int(full[2]).to_bytes(4, sys.byteorder)
        self._numpy = Numpy(memory if is_known else b"", full)
        return self._numpy

    def _put_numpy(self, state: Numpy, numpy: Any) -> None:  # noqa: ANN401 - as below
        if not state.memory or state.has_spare:
            numpy.set_state(state.full)
        elif ctypes.string_at(_address(numpy), _STATE_BYTES) != state.memory:
            numpy.seed(0)  # takes away a spare number
            ctypes.memmove(_address(numpy), state.memory, _STATE_BYTES)
        self._numpy = state


def _read(state: Tensor) -> bytes:
    return ctypes.string_at(state.data_ptr(), state.nbytes)


def _read_python() -> tuple[bytes, object]:
    """The memory of Python's generator, as far as it can be known, and its spare normal number."""
    owner: Any = getattr(random.random, "__self__", None)
    if sys.implementation.name != "cpython" or _Twister.__basicsize__ < _HEAD + _STATE_BYTES:
        return b"", None
    return ctypes.string_at(id(owner) + _HEAD, _STATE_BYTES), owner.gauss_next


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
