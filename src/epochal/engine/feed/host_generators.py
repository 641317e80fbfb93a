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

    Mark = Callable[[], object]  # returns a value that changes when a number is drawn

_TWISTER_WORDS = 624  # size of the state of a Mersenne twister, in 32-bit words
_TWISTER_BYTES = 4 * _TWISTER_WORDS
_PREFIX_BYTES = 4 * 5  # the first words, which differ between states at the same position
_OBJECT_HEADER_BYTES = object.__basicsize__  # the fields of a C object follow its header
_MAX_TORCH_SEED_OFFSET = 256  # bytes of a torch generator in which its seed is searched
# The memory of a torch generator, counted from its seed: seed (8 bytes), words left (4), padding,
# next word (4), all words, and whether it keeps a second normal number of 32 and of 64 bits.
_TORCH_NEXT_OFFSET = 16
_TORCH_WORDS_OFFSET = 20
_TORCH_SPARE_OFFSETS = (
    _TORCH_WORDS_OFFSET + _TWISTER_BYTES + 8,
    _TORCH_WORDS_OFFSET + _TWISTER_BYTES + 20,
)
_MASK_64 = (1 << 64) - 1

_join = b"".join


def mix_seed(seed: int, number: int) -> int:
    """Mix two numbers into 64 pseudo-random bits, with splitmix64."""
    z = (seed + (number + 1) * 0x9E3779B97F4A7C15) & _MASK_64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK_64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK_64
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
    marks: tuple[object, object, object]
    """Of Python's, numpy's and torch's, equal as long as there is no draw."""

    def equals(self, other: HostGeneratorStates) -> bool:
        """Whether no generator was drawn from between the two."""
        is_same = self.python == other.python and self.numpy == other.numpy
        return is_same and torch.equal(self.torch, other.torch)


@final
class HostGenerators:
    """Saves the states of the generators, notices draws, and restores the states.

    Reading a state of Python or numpy takes up to 50 µs, and most batches draw nothing. So a few
    bytes of the generators' memory are compared first; nothing is ever written there. Where the
    layout of that memory is unknown, states are read each time, and ``begin`` refuses to watch,
    except for torch, whose state is read in 2 µs.
    """

    def __init__(self) -> None:
        self._find_marks()
        self._latest = HostGeneratorStates((), None, torch.empty(0), (None, None, None))
        self._torch_begun: object = None

    @override
    def __reduce__(self) -> tuple[type[HostGenerators], tuple[()]]:
        return HostGenerators, ()  # memory addresses are valid in one process only

    def take(self) -> HostGeneratorStates:
        """The states as they are now."""
        python, numpy, of_torch, known = self._latest
        marks = self._read_marks()
        if marks == known:
            return self._latest
        if get_bit_generator() is not self._bits:
            self._find_marks()
            marks = self._read_marks()
        python = python if marks[0] == known[0] else HOST_GENERATORS["python"].read()
        numpy = numpy if marks[1] == known[1] else _read_numpy()
        of_torch = of_torch if marks[2] == known[2] else HOST_GENERATORS["torch"].read()
        self._latest = HostGeneratorStates(python, numpy, of_torch, marks)
        return self._latest

    def restore(self, states: HostGeneratorStates) -> None:
        """Bring the generators into these states."""
        python, numpy, of_torch = self._read_marks()
        if python != states.marks[0]:
            HOST_GENERATORS["python"].restore(states.python)
        if numpy != states.marks[1]:
            _restore_numpy(states.numpy)
        if of_torch != states.marks[2]:
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
        self._torch_begun = self._torch_mark()
        return states

    def end(self, states: HostGeneratorStates) -> bool:
        """Restore the states that ``begin`` gave; whether there was no draw since."""
        if self._read_marks() != (*states.marks[:2], self._torch_begun):
            self.restore(states)
            return False
        HOST_GENERATORS["torch"].restore(states.torch)
        return True

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
        self._torch_mark = _find_torch_mark()
        self._can_watch = object not in (self._python_mark, self._numpy_mark)

    def _read_marks(self) -> tuple[object, object, object]:
        return self._python_mark(), self._numpy_mark(), self._torch_mark()


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
    if not is_twister or _Twister.__basicsize__ < _OBJECT_HEADER_BYTES + 4 + _TWISTER_BYTES:
        return object
    words = random.getstate()[1]
    expected = struct.pack(f"={_TWISTER_WORDS + 1}I", words[-1], *words[:-1])
    if _view(id(owner) + _OBJECT_HEADER_BYTES, 4 + _TWISTER_BYTES).raw != expected:
        return object
    view = _view(id(owner) + _OBJECT_HEADER_BYTES, 4 + _PREFIX_BYTES)
    return lambda: (view.raw, owner.gauss_next)


def _find_numpy_mark(bits: Any) -> Mark:  # noqa: ANN401 - as numpy gives it
    """The same for numpy's generator, with its cached second normal number."""
    owner, spare = getattr(np.random.rand, "__self__", None), _find_spare_normal()
    if owner is None or spare is None or not _is_default_numpy():
        return object
    state, address = bits.state["state"], bits.ctypes.state_address
    expected = state["key"].tobytes() + struct.pack("=i", state["pos"])
    if _view(address, _TWISTER_BYTES + 4).raw != expected:
        return object
    views = (
        _view(address, _PREFIX_BYTES),
        _view(address + _TWISTER_BYTES, 4),
        _view(id(owner) + spare, 8),
    )
    return lambda: (get_bit_generator(), _join(views))


def _find_spare_normal() -> int | None:
    """The offset of the cached second normal number in a RandomState; None if not found."""
    trial = np.random.RandomState(1)
    trial.standard_normal()
    state: Any = trial.get_state()
    spare, memory = struct.pack("=d", state[4]), _view(id(trial), type(trial).__basicsize__)
    place: int = memory.raw.find(spare)
    trial.standard_normal()
    return None if place < 0 or spare in memory.raw else place


def _find_torch_mark() -> Mark:
    """The same for torch's generator, with its seed; its whole state if unreadable."""
    generator, place = torch.default_generator, _find_torch_offset()
    address = _address_of(generator) + (place or 0)
    if place is None or not _has_torch_words(generator, address):
        return lambda: generator.get_state().numpy().tobytes()
    views = (
        _view(address, 12),
        _view(address + _TORCH_NEXT_OFFSET, 4 + _PREFIX_BYTES),
        *(_view(address + spare, 1) for spare in _TORCH_SPARE_OFFSETS),
    )
    return lambda: _join(views)


def _find_torch_offset() -> int | None:
    """The offset of the seed in a torch generator; None if the memory layout is unknown."""
    trial = torch.Generator().manual_seed(_MASK_64 // 3)
    torch.randn(1, generator=trial)
    address, seed_and_left = _address_of(trial), trial.get_state().numpy().tobytes()[:12]
    if not address:
        return None
    place: int = _view(address, _MAX_TORCH_SEED_OFFSET).raw.find(seed_and_left)
    if place < 0 or not _has_torch_words(trial, address + place):
        return None
    has_spare = _view(address + place + _TORCH_SPARE_OFFSETS[1], 1)
    before = has_spare.raw
    torch.randn(1, generator=trial)
    return place if (before, has_spare.raw) == (b"\1", b"\0") else None


def _address_of(generator: torch.Generator) -> int:
    """The memory address of a torch generator; 0 if unknown."""
    return getattr(generator, "_cdata", 0)


def _has_torch_words(generator: torch.Generator, address: int) -> bool:
    """Whether the memory at an address has the layout that ``_find_torch_mark`` reads."""
    state = generator.get_state().numpy().tobytes()
    seed, left, following, *words = struct.unpack_from(f"=Qi4xQ{_TWISTER_WORDS}Q", state)
    memory = _view(address, _TORCH_WORDS_OFFSET + _TWISTER_BYTES).raw
    found = struct.unpack(f"=Qi4xI{_TWISTER_WORDS}I", memory)
    return found == (seed, left, following, *words)


def _view(address: int, size: int) -> Any:  # noqa: ANN401 - ctypes names no type
    """The memory at an address; valid as long as its owner exists."""
    return (ctypes.c_char * size).from_address(address)
