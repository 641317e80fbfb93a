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
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Iterator

_MASK = (1 << 64) - 1
_WORDS = 624  # of the state of a Mersenne twister
_STATE_BYTES = 4 * _WORDS + 4  # its words, and the place of the next one
_HEAD = object.__basicsize__  # where an object's own memory begins
_NOWHERE: Any = (ctypes.c_char * 1)()  # equals the memory of no state
_TORCH_HEAD = 256  # in which the state of a generator of torch begins, with its seed
_TORCH_BYTES = 8 + 12 + 4 * _WORDS + 4 + 24  # seed, places, words, spare normal numbers
_MARK = 0x5EED_0F7E_57ED_5EED


def mix(seed: int, number: int) -> int:
    """64 bits that depend on both numbers and look like no others; splitmix64."""
    z = (seed + (number + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def seed_host(seed: int) -> None:
    """Seed the generators of Python, numpy and torch with 64 bits; devices keep theirs."""
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None and _is_twister(numpy.random.get_bit_generator()):
        # Other bits than torch takes: the two have the same algorithm.
        numpy.random.seed(seed >> 32)
    # Not torch.manual_seed, which takes a hundred times as long to reach every device.
    torch.default_generator.manual_seed(seed)


class Host(NamedTuple):
    """The state of Python's or numpy's global generator."""

    memory: bytes
    """What the generator has in memory; empty if that does not tell its state."""

    full: tuple[Any, ...]
    """As the generator gives it."""


class States(NamedTuple):
    """The states of the three generators of the host."""

    python: Host
    numpy: Host | None
    torch: Tensor

    def equals(self, other: States) -> bool:
        """Whether nobody drew from one to the other."""
        if self.numpy is None or other.numpy is None:
            is_same = self.numpy is other.numpy
        else:
            is_same = _are_equal(self.numpy.full, other.numpy.full)
        return (
            is_same
            and self.python.full == other.python.full
            and torch.equal(self.torch, other.torch)
        )


@final
class Ambient:
    """Takes the states of the generators, and puts them back.

    To ask a generator for its state takes up to 30 µs, and hardly anybody draws between two
    batches. So their memory is looked at, and they are asked only if it is another one than the
    last time.
    """

    def __init__(self) -> None:
        self._python = _Python()
        self._numpy = _Numpy()
        self._torch = _Torch()

    @override
    def __reduce__(self) -> tuple[type[Ambient], tuple[()]]:
        return Ambient, ()  # another process has its own memory

    def take(self) -> States:
        """The states as they are now."""
        return States(self._python.take(), self._numpy.take(), self._torch.take())

    def put(self, states: States) -> None:
        """Bring the generators into these states."""
        self._python.put(states.python)
        self._numpy.put(states.numpy)
        self._torch.put(states.torch)

    def begin(self, seed: int) -> None:
        """After a ``take``: seed torch only, for those who ask it for its seed without a draw."""
        self._torch.seed(seed)

    def is_still(self) -> bool:
        """Whether nobody has drawn since ``begin``."""
        return self._python.is_still() and self._numpy.is_still() and self._torch.is_still()

    @contextmanager
    def apart(self, seed: int) -> Iterator[None]:
        """Seed the generators for a block; afterwards they are as before."""
        states = self.take()
        try:
            seed_host(seed)
            yield
        finally:
            self.put(states)


@final
class _Python:
    def __init__(self) -> None:
        self._owner: Any = None
        self._memory = _NOWHERE
        self._latest = Host(b"", ())

    def take(self) -> Host:
        if not self.is_still():
            full = random.getstate()
            words = struct.pack(f"={_WORDS + 1}I", full[1][-1], *full[1][:-1])
            self._latest = Host(words if self._memory.raw == words else b"", full)
        return self._latest

    def put(self, state: Host) -> None:
        self._latest = state
        if not self.is_still():
            random.setstate(state.full)

    def is_still(self) -> bool:
        owner: Any = getattr(random.random, "__self__", None)
        if owner is not self._owner:
            self._owner = owner
            is_known = sys.implementation.name == "cpython" and isinstance(owner, _Twister)
            has_room = _Twister.__basicsize__ >= _HEAD + _STATE_BYTES
            self._memory = _look_at(id(owner) + _HEAD) if is_known and has_room else _NOWHERE
        memory, full = self._latest
        if not memory:
            return full == random.getstate()
        return bool(self._memory.raw == memory and owner.gauss_next == full[2])


@final
class _Numpy:
    """None is the state of one that was not imported, or that has another algorithm."""

    def __init__(self) -> None:
        self._owner: Any = None
        self._memory = _NOWHERE
        self._latest: Host | None = None

    def take(self) -> Host | None:
        if self.is_still():
            return self._latest
        self._latest = None
        if self._memory is not _NOWHERE:
            full = sys.modules["numpy"].random.get_state()
            words = full[1].tobytes() + int(full[2]).to_bytes(4, sys.byteorder)
            # With a spare normal number in store, a draw could leave the memory as it is.
            is_told = self._memory.raw == words and not full[3]
            self._latest = Host(words if is_told else b"", full)
        return self._latest

    def put(self, state: Host | None) -> None:
        self._latest = state
        if state is None or self.is_still() or self._memory is _NOWHERE:
            return
        numpy = sys.modules["numpy"].random
        if state.memory:
            numpy.seed(0)  # takes away a spare number
            self._memory.raw = state.memory
        else:
            numpy.set_state(state.full)

    def is_still(self) -> bool:
        numpy = sys.modules.get("numpy")
        owner: Any = None if numpy is None else numpy.random.get_bit_generator()
        if owner is not self._owner:
            self._owner = owner
            has_words = _is_twister(owner)
            self._memory = _look_at(owner.ctypes.state_address) if has_words else _NOWHERE
        latest, is_known = self._latest, self._memory is not _NOWHERE
        if latest is None or not is_known:
            return latest is None and not is_known
        if not latest.memory:
            return _are_equal(latest.full, sys.modules["numpy"].random.get_state())
        return bool(self._memory.raw == latest.memory)


@final
class _Torch:
    """Where its memory cannot be found, it is asked for its state."""

    def __init__(self) -> None:
        self._generator = torch.default_generator
        self._found = _find_torch_memory(self._generator)
        self._memory = b""
        self._latest: Tensor | None = None

    def take(self) -> Tensor:
        latest, memory = self._latest, self._read()
        if latest is None or memory != self._memory:
            latest = self._generator.get_state()
            self._latest, self._memory = latest, memory
        return latest

    def put(self, state: Tensor) -> None:
        if state is not self._latest or not self.is_still():
            self._generator.set_state(state)
            self._latest, self._memory = state, self._read()

    def seed(self, seed: int) -> None:
        self._generator.manual_seed(seed)
        self._latest, self._memory = None, self._read()

    def is_still(self) -> bool:
        return self._read() == self._memory

    def _read(self) -> bytes:
        found = self._found
        if found is not None:
            memory: bytes = found.raw
            return memory
        state = self._generator.get_state()
        return ctypes.string_at(state.data_ptr(), state.nbytes)


def _is_twister(generator: object) -> bool:
    """Whether numpy's generator is the usual one; somebody may have exchanged it."""
    return type(generator).__name__ == "MT19937"


def _look_at(address: int, size: int = _STATE_BYTES) -> Any:  # noqa: ANN401 - ctypes names no type
    """The memory there, as long as somebody holds what it belongs to."""
    return (ctypes.c_char * size).from_address(address)


def _find_torch_memory(generator: Any) -> Any:  # noqa: ANN401 - as above; None if it is unknown
    """The memory of a generator of torch, if all that moves one can be seen there.

    Nobody promises where that is, so it is looked for in another one, and tried.
    """
    trial: Any = torch.Generator("cpu").manual_seed(_MARK)
    address = getattr(trial, "_cdata", None)
    if not isinstance(address, int):
        return None
    place = ctypes.string_at(address, _TORCH_HEAD).find(_MARK.to_bytes(8, sys.byteorder))
    if place < 0:
        return None
    memory = _look_at(address + place, _TORCH_BYTES)
    for size in (1, 1, _WORDS):  # a number, its spare one, and so many that the place is the same
        before = memory.raw
        torch.empty(size, dtype=torch.float64, device="cpu").normal_(generator=trial)
        if memory.raw == before:
            return None
    return _look_at(generator._cdata + place, _TORCH_BYTES)


def _are_equal(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Whether two states of numpy are the same; they begin with a name and an array."""
    return one[1].tobytes() == other[1].tobytes() and one[2:] == other[2:]
