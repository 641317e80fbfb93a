"""The memory of the host's generators, as far as it shows whether somebody has drawn from them."""

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

if TYPE_CHECKING:
    from collections.abc import Iterator


MemoryWords = tuple[object, object, object, object, object]
"""What is seen of Python's generator (2), of numpy's (2) and of torch's; equal if nobody drew."""

PYTHON, NUMPY, TORCH = slice(0, 2), slice(2, 4), slice(4, 5)

_WORDS = 624  # of the state of a Mersenne twister; they change all at once
_WORD_BYTES = 4 * _WORDS
_PREFIX_BYTES = 4 * 5  # of the first words, which tell a state from others with the same place
_HEAD = object.__basicsize__  # where an object's own memory begins
_TORCH_HEAD = 256  # of a generator of torch, in which its state begins, with the seed
_TRIAL_SEEDS = (0x5EED_0F7E_57ED_5EED, 0x1234_5678_9ABC_DEF0)

_join = b"".join


@final
class GeneratorMemory:
    """Looks at a few words of each generator; asking one for its state takes up to 30 µs.

    A draw moves the place of the next word, or takes a spare normal number, or changes all words.

    Args:
        python: The owner of ``random.random``.
        numpy: The generator behind ``numpy.random``.
        spare: Where a ``RandomState`` has its spare normal number.
        seed: Where a generator of torch has its seed.
    """

    def __init__(self, python: Any, numpy: Any, *, spare: int, seed: int) -> None:  # noqa: ANN401 - memory has no types
        state: Any = getattr(np.random.rand, "__self__", None)
        generator: Any = torch.default_generator
        self.numpy = numpy
        self.seed = ctypes.c_uint64.from_address(generator._cdata + seed)
        """That of torch, which can be changed here without anything else."""

        self._owners = python, state  # held as long as their memory is looked at
        self._in_python = _view(id(python) + _HEAD, 4 + _PREFIX_BYTES)
        address = numpy.ctypes.state_address
        self._in_numpy = (
            _view(address, _PREFIX_BYTES),
            _view(address + _WORD_BYTES, 4),
            _view(id(state) + spare, 8),
        )
        self._in_torch = _views_of_torch(generator._cdata + seed)
        self._numpy_words = _view(address, _WORD_BYTES)
        self._numpy_place = ctypes.c_int.from_address(address + _WORD_BYTES)

    def look(self) -> MemoryWords:
        """What is to be seen now."""
        return (
            self._in_python.raw,
            self._owners[0].gauss_next,
            _join(self._in_numpy),
            get_bit_generator(),
            _join(self._in_torch),
        )

    def put_numpy(self, state: Any) -> None:  # noqa: ANN401 - as numpy gives it
        """Bring numpy's generator into a state."""
        _, words, place, has_spare, _ = state
        if has_spare:
            np.random.set_state(state)  # takes 30 µs
        else:
            np.random.seed(0)  # takes away a spare number
            self._numpy_words.raw, self._numpy_place.value = words.tobytes(), place


@final
class NoGeneratorMemory:
    """Sees nothing: whoever looks twice must think that everybody drew.

    Args:
        numpy: The generator behind ``numpy.random``.
    """

    def __init__(self, numpy: object) -> None:
        self.numpy = numpy
        self.seed = None

    def look(self) -> MemoryWords:
        """What equals nothing that was seen before."""
        return object(), None, object(), None, object()

    def put_numpy(self, state: Any) -> None:  # noqa: ANN401 - as numpy gives it
        """Bring numpy's generator into a state."""
        np.random.set_state(state)


def find_generator_memory() -> GeneratorMemory | NoGeneratorMemory:
    """One of the generators as they are, if all that moves them can be seen in their memory.

    Nobody promises where that is, so it is tried, with other generators.
    """
    python, numpy = getattr(random.random, "__self__", None), get_bit_generator()
    if not (_is_python_readable(python) and _is_numpy_readable(numpy)):
        return NoGeneratorMemory(numpy)
    spare, seed = _find_numpy_offset(), _find_torch_offset()
    if spare is None or seed is None:
        return NoGeneratorMemory(numpy)
    return GeneratorMemory(python, numpy, spare=spare, seed=seed)


def is_default_bit_generator(generator: object) -> bool:
    """Whether a generator of numpy is the usual one; somebody may have exchanged it."""
    return type(generator) is np.random.MT19937


def _is_python_readable(owner: object) -> bool:
    is_twister = sys.implementation.name == "cpython" and isinstance(owner, _Twister)
    if not is_twister or _Twister.__basicsize__ < _HEAD + 4 + _WORD_BYTES:
        return False
    words = random.getstate()[1]
    expected = struct.pack(f"={_WORDS + 1}I", words[-1], *words[:-1])
    return bool(_view(id(owner) + _HEAD, 4 + _WORD_BYTES).raw == expected)


def _is_numpy_readable(generator: Any) -> bool:  # noqa: ANN401 - as numpy gives it
    if not is_default_bit_generator(generator):
        return False
    state = generator.state["state"]
    expected = state["key"].tobytes() + struct.pack("=i", state["pos"])
    return bool(_view(generator.ctypes.state_address, _WORD_BYTES + 4).raw == expected)


def _find_numpy_offset() -> int | None:
    """Where a RandomState has its spare normal number; it must be gone when that was drawn."""
    trial = np.random.RandomState(1)
    trial.standard_normal()
    state: Any = trial.get_state()
    spare, memory = struct.pack("=d", state[4]), _view(id(trial), type(trial).__basicsize__)
    place: int = memory.raw.find(spare)
    trial.standard_normal()
    return None if place < 0 or spare in memory.raw else place


def _find_torch_offset() -> int | None:
    """Where a generator has its seed; in fixed distances follow its words and spare numbers."""
    seed, other_seed = _TRIAL_SEEDS
    trial: Any = torch.Generator("cpu").manual_seed(seed)
    address = getattr(trial, "_cdata", None)
    if not isinstance(address, int):
        return None
    place = ctypes.string_at(address, _TORCH_HEAD).find(seed.to_bytes(8, sys.byteorder))
    if place < 0:
        return None
    views = _views_of_torch(address + place)
    for size in (1, 1, _WORDS):  # a number, its spare one, and so many that the place is the same
        before = _join(views)
        torch.empty(size, dtype=torch.float64, device="cpu").normal_(generator=trial)
        if _join(views) == before:
            return None
    ctypes.c_uint64.from_address(address + place).value = other_seed
    return place if trial.initial_seed() == other_seed else None


def _views_of_torch(address: int) -> tuple[Any, Any]:
    """Seed, places and first words; normal numbers that lie ready."""
    return _view(address, 20 + _PREFIX_BYTES), _view(address + 20 + _WORD_BYTES, 28)


def _view(address: int, size: int) -> Any:  # noqa: ANN401 - ctypes names no type
    """The memory there, as long as somebody holds what it belongs to."""
    return (ctypes.c_char * size).from_address(address)


_MASK = (1 << 64) - 1


def mix_seed(seed: int, number: int) -> int:
    """64 bits that depend on both numbers and look like no others; splitmix64."""
    z = (seed + (number + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def seed_host_generators(seed: int) -> None:
    """Seed the generators of Python, numpy and torch with 64 bits; devices keep theirs."""
    random.seed(seed)
    if is_default_bit_generator(get_bit_generator()):
        # Other bits than torch takes: the two have the same algorithm.
        np.random.seed(seed >> 32)
    # Not torch.manual_seed, which takes a hundred times as long to reach every device.
    torch.default_generator.manual_seed(seed)


class HostGeneratorStates(NamedTuple):
    """The states of the three generators of the host."""

    python: tuple[Any, ...]
    numpy: Any
    """None if somebody gave numpy another algorithm, which is left alone."""

    torch: Tensor
    look: MemoryWords
    """What was seen of them in memory."""

    def equals(self, other: HostGeneratorStates) -> bool:
        """Whether nobody drew from one to the other."""
        one, two = self.numpy, other.numpy
        if one is None or two is None:
            is_same = one is two
        else:
            is_same = one[1].tobytes() == two[1].tobytes() and one[2:] == two[2:]
        return is_same and self.python == other.python and torch.equal(self.torch, other.torch)


@final
class HostGenerators:
    """Takes the states of the generators, and puts them back.

    Hardly anybody draws from them between two batches. So their memory is looked at, and those are
    asked for their state of which something else is seen than the last time.
    """

    def __init__(self) -> None:
        self._memory = find_generator_memory()
        self._latest = HostGeneratorStates((), None, torch.empty(0), (None,) * 5)
        self._torch_seed = 0

    @override
    def __reduce__(self) -> tuple[type[HostGenerators], tuple[()]]:
        return HostGenerators, ()  # another process has its own memory

    def take(self) -> HostGeneratorStates:
        """The states as they are now."""
        look, latest = self._memory.look(), self._latest
        if look != latest.look:
            latest = self._latest = self._ask(look, latest)
        return latest

    def put(self, states: HostGeneratorStates) -> None:
        """Bring the generators into these states."""
        look, kept = self._memory.look(), states.look
        if look[PYTHON] != kept[PYTHON]:
            random.setstate(states.python)
        if look[NUMPY] != kept[NUMPY] and states.numpy is not None:
            self._put_numpy(states.numpy)
        if look[TORCH] != kept[TORCH]:
            torch.default_generator.set_state(states.torch)
        self._latest = states

    def begin(self, seed: int) -> HostGeneratorStates | None:
        """Take the states and give torch a seed, which can be asked for without a draw.

        None, and nothing is changed, if draws could not be seen.
        """
        states, place = self.take(), self._memory.seed
        if place is None:
            return None
        self._torch_seed, place.value = place.value, seed
        return states

    def end(self, seed: int, states: HostGeneratorStates) -> bool:
        """Bring the generators into the states that ``begin`` gave; whether nobody had drawn."""
        place = self._memory.seed
        if place is not None and place.value == seed:
            place.value = self._torch_seed
            if self._memory.look() == states.look:
                return True
        self.put(states)
        return False

    @contextmanager
    def apart(self, seed: int) -> Iterator[None]:
        """Seed the generators for a block; afterwards they are as before."""
        states = self.take()
        try:
            seed_host_generators(seed)
            yield
        finally:
            self.put(states)

    def _put_numpy(self, state: Any) -> None:  # noqa: ANN401 - as numpy gives it
        generator = get_bit_generator()
        if generator is self._memory.numpy:
            self._memory.put_numpy(state)
        elif is_default_bit_generator(generator):
            np.random.set_state(state)

    def _ask(self, look: MemoryWords, latest: HostGeneratorStates) -> HostGeneratorStates:
        if get_bit_generator() is not self._memory.numpy:
            self._memory = find_generator_memory()
            look = self._memory.look()
        known = latest.look
        return HostGeneratorStates(
            latest.python if look[PYTHON] == known[PYTHON] else random.getstate(),
            latest.numpy if look[NUMPY] == known[NUMPY] else _read_numpy_state(),
            latest.torch if look[TORCH] == known[TORCH] else torch.default_generator.get_state(),
            look,
        )


def _read_numpy_state() -> Any:  # noqa: ANN401 - as numpy gives it
    return np.random.get_state() if is_default_bit_generator(get_bit_generator()) else None
