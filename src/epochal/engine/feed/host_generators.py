"""Saves and restores the global random generators of the host around the reading of each batch."""

from __future__ import annotations

import ctypes
import random
import struct
import sys
from _random import Random as _Twister
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np
import torch
from numpy.random.mtrand import get_bit_generator
from torch import Tensor
from typing_extensions import override

from epochal.engine.device.seeding import HOST_GENERATORS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Mark = Callable[[], object]  # gives a value that stays equal until a draw

_WORDS = 624  # of the state of a Mersenne twister; they change all at once
_WORD_BYTES = 4 * _WORDS
_PREFIX_BYTES = 4 * 5  # of the first words, which tell apart states with the same position
_HEAD = object.__basicsize__  # where an object's own memory begins
_MASK = (1 << 64) - 1

_join = b"".join


def mix_seed(seed: int, number: int) -> int:
    """Mix two numbers into 64 pseudo-random bits, with splitmix64."""
    z = (seed + (number + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def seed_host_generators(seed: int) -> None:
    """Seed the generators of Python, numpy and torch with 64 bits; devices keep theirs."""
    random.seed(seed)
    if _is_default_numpy():
        # Other bits than torch takes: the two have the same algorithm.
        np.random.seed(seed >> 32)
    # Not torch.manual_seed, which takes a hundred times as long to reach every device.
    torch.default_generator.manual_seed(seed)


class HostGeneratorStates(NamedTuple):
    """The states of the three generators of the host."""

    python: tuple[Any, ...]
    numpy: Any
    """None if numpy has another algorithm than its default, which is left alone."""

    torch: Tensor
    marks: tuple[object, object]
    """Of Python's and numpy's, equal as long as there is no draw."""

    def equals(self, other: HostGeneratorStates) -> bool:
        """Whether no generator was drawn from between the two."""
        is_same = self.python == other.python and self.numpy == other.numpy
        return is_same and torch.equal(self.torch, other.torch)


@final
class HostGenerators:
    """Saves the states of the generators, notices draws, and restores the states.

    Reading a state of Python or numpy takes up to 50 µs, and most batches draw nothing. So a few
    bytes of the generators' memory are compared first; nothing is ever written there. Where the
    layout of that memory is unknown, states are read each time, and ``begin`` refuses to watch.
    """

    def __init__(self) -> None:
        self._find_marks()
        self._latest = HostGeneratorStates((), None, torch.empty(0), (None, None))
        self._torch_begun: tuple[int | None, Tensor] = None, torch.empty(0)

    @override
    def __reduce__(self) -> tuple[type[HostGenerators], tuple[()]]:
        return HostGenerators, ()  # another process has its own memory

    def take(self) -> HostGeneratorStates:
        """The states as they are now."""
        python, numpy, _, known = self._latest
        marks = self._read_marks()
        if marks != known:
            if get_bit_generator() is not self._bits:
                self._find_marks()
                marks = self._read_marks()
            python = python if marks[0] == known[0] else HOST_GENERATORS["python"].read()
            numpy = numpy if marks[1] == known[1] else _read_numpy()
        self._latest = HostGeneratorStates(python, numpy, HOST_GENERATORS["torch"].read(), marks)
        return self._latest

    def restore(self, states: HostGeneratorStates) -> None:
        """Bring the generators into these states."""
        python, numpy = self._read_marks()
        if python != states.marks[0]:
            HOST_GENERATORS["python"].restore(states.python)
        if numpy != states.marks[1]:
            _restore_numpy(states.numpy)
        HOST_GENERATORS["torch"].restore(states.torch)
        self._latest = states

    def begin(self, seed: int) -> HostGeneratorStates | None:
        """Save the states and seed torch, whose seed can be read without a draw.

        None, and nothing is changed, if draws could not be noticed.
        """
        states = self.take()
        if not self._can_watch:
            return None
        torch.default_generator.manual_seed(seed)
        if self._torch_begun[0] != seed:  # the same seed gives the same state
            self._torch_begun = seed, HOST_GENERATORS["torch"].read()
        return states

    def end(self, states: HostGeneratorStates) -> bool:
        """Restore the states that ``begin`` gave; whether there was no draw since."""
        is_untouched = self._read_marks() == states.marks and torch.equal(
            HOST_GENERATORS["torch"].read(), self._torch_begun[1]
        )
        self.restore(states)
        return is_untouched

    @contextmanager
    def seeded(self, seed: int) -> Iterator[None]:
        """Seed the generators for a block, and restore them afterwards."""
        states = self.take()
        try:
            seed_host_generators(seed)
            yield
        finally:
            self.restore(states)

    def _find_marks(self) -> None:
        self._bits = get_bit_generator()
        self._python_mark, self._numpy_mark = _find_python_mark(), _find_numpy_mark(self._bits)
        self._can_watch = object not in (self._python_mark, self._numpy_mark)

    def _read_marks(self) -> tuple[object, object]:
        return self._python_mark(), self._numpy_mark()


def _is_default_numpy() -> bool:
    """Whether numpy has its default algorithm; a user may have replaced it."""
    return type(get_bit_generator()) is np.random.MT19937


def _read_numpy() -> Any:  # noqa: ANN401 - as numpy gives it
    if not _is_default_numpy():
        return None
    name, words, *rest = HOST_GENERATORS["numpy"].read()
    return name, words.tolist(), *rest  # numpy takes a list back 20 times as fast as an array


def _restore_numpy(state: Any) -> None:  # noqa: ANN401 - same
    if state is not None and _is_default_numpy():
        HOST_GENERATORS["numpy"].restore(state)


def _find_python_mark() -> Mark:
    """Position and first words of Python's generator; ``object``, never equal, if unreadable."""
    owner: Any = getattr(random.random, "__self__", None)
    is_twister = sys.implementation.name == "cpython" and isinstance(owner, _Twister)
    if not is_twister or _Twister.__basicsize__ < _HEAD + 4 + _WORD_BYTES:
        return object
    words = random.getstate()[1]
    expected = struct.pack(f"={_WORDS + 1}I", words[-1], *words[:-1])
    if _view(id(owner) + _HEAD, 4 + _WORD_BYTES).raw != expected:
        return object
    view = _view(id(owner) + _HEAD, 4 + _PREFIX_BYTES)
    return lambda: (view.raw, owner.gauss_next)


def _find_numpy_mark(bits: Any) -> Mark:  # noqa: ANN401 - as numpy gives it
    """The same for numpy's generator, with the normal number that may be left of a pair."""
    owner, spare = getattr(np.random.rand, "__self__", None), _find_spare_normal()
    if owner is None or spare is None or not _is_default_numpy():
        return object
    state, address = bits.state["state"], bits.ctypes.state_address
    expected = state["key"].tobytes() + struct.pack("=i", state["pos"])
    if _view(address, _WORD_BYTES + 4).raw != expected:
        return object
    views = (
        _view(address, _PREFIX_BYTES),
        _view(address + _WORD_BYTES, 4),
        _view(id(owner) + spare, 8),
    )
    return lambda: (get_bit_generator(), _join(views))


def _find_spare_normal() -> int | None:
    """Where a RandomState has its spare normal number, which must vanish when it is drawn."""
    trial = np.random.RandomState(1)
    trial.standard_normal()
    state: Any = trial.get_state()
    spare, memory = struct.pack("=d", state[4]), _view(id(trial), type(trial).__basicsize__)
    place: int = memory.raw.find(spare)
    trial.standard_normal()
    return None if place < 0 or spare in memory.raw else place


def _view(address: int, size: int) -> Any:  # noqa: ANN401 - ctypes names no type
    """The memory there; valid as long as its owner exists."""
    return (ctypes.c_char * size).from_address(address)
