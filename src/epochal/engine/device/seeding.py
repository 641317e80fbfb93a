"""Seeds derived from the run's seed; states of random generators, read and restored."""

from __future__ import annotations

import hashlib
import os
import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from epochal.engine.device.precision import allowing_tf32

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from epochal.engine.interfaces.options import EngineOptions


def derive_seed(seed: int, *names: str | int) -> int:
    """A seed of 63 bits that depends on ``seed`` and all names, the same on every machine."""
    text = "\x1f".join([str(int(seed)), *(str(name) for name in names)])
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def seed_everything(seed: int) -> None:
    """Seed the generators of Python, numpy and torch, on every device."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    if torch.accelerator.current_accelerator() is None:
        # For devices that do not exist, torch.manual_seed formats the call stack: 1 ms each time.
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed all generators for a block, and restore them afterwards."""
    states = generator_states()
    try:
        seed_everything(seed)
        yield
    finally:
        restore_generators(states)


class GlobalGenerator(NamedTuple):
    """How the state of one global generator is read and restored."""

    read: Callable[[], Any]
    restore: Callable[[Any], object]


HOST_GENERATORS = {
    "python": GlobalGenerator(random.getstate, random.setstate),
    "numpy": GlobalGenerator(np.random.get_state, np.random.set_state),
    "torch": GlobalGenerator(torch.default_generator.get_state, torch.default_generator.set_state),
}


def generator_states() -> dict[str, Any]:
    """The states of the generators of Python, numpy and torch, on every device in use."""
    states = {name: generator.read() for name, generator in HOST_GENERATORS.items()}
    # Reading the state of an unused device would initialize it, and take its memory.
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch has no types here
        states["cuda"] = torch.cuda.get_rng_state_all()
    return states


def restore_generators(states: dict[str, Any]) -> None:
    """Restore the states of ``generator_states``."""
    for name, generator in HOST_GENERATORS.items():
        generator.restore(states[name])
    if "cuda" in states:
        torch.cuda.set_rng_state_all(states["cuda"])


def find_used_generator(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Which library's generator on the host was drawn from between two states; empty if none."""
    names = {"python": "Python's random", "numpy": "numpy.random", "torch": "torch on the CPU"}
    for name, text in names.items():
        if fingerprint_generator_state(before[name]) != fingerprint_generator_state(after[name]):
            return text
    return ""


def fingerprint_generator_state(state: Any) -> Hashable:  # noqa: ANN401 - of three libraries
    """A value that is equal for equal states."""
    if isinstance(state, dict):
        return tuple([(name, fingerprint_generator_state(part)) for name, part in state.items()])
    if isinstance(state, Tensor):
        state = state.numpy()
    if isinstance(state, np.ndarray):
        return state.tobytes()
    if isinstance(state, tuple):
        return tuple(map(fingerprint_generator_state, state))
    return state  # type: ignore[no-any-return]  # a number, a string or None


def read_generator_state(value: object) -> Any:  # noqa: ANN401 - of three libraries
    """The state of a random generator object; None for any other object."""
    if isinstance(value, random.Random) and not isinstance(value, random.SystemRandom):
        return value.getstate()
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, np.random.Generator):
        return value.bit_generator.state
    if isinstance(value, np.random.RandomState):
        return value.get_state(legacy=False)
    return None


def set_generator_state(value: Any, state: Any) -> None:  # noqa: ANN401 - same
    """Put a generator into a state that ``read_generator_state`` returned."""
    if isinstance(value, random.Random):
        value.setstate(state)
    elif isinstance(value, np.random.Generator):
        value.bit_generator.state = state
    else:
        value.set_state(state)


@contextmanager
def applying_engine_options(options: EngineOptions) -> Iterator[None]:
    """Apply the engine's options to this process for a block."""
    threads = torch.get_num_threads()
    was_deterministic = torch.are_deterministic_algorithms_enabled()
    was_warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    cudnn = torch.backends.cudnn
    previous = cudnn.benchmark, cudnn.deterministic
    try:
        if options.num_threads is not None:
            torch.set_num_threads(options.num_threads)
        if options.deterministic:
            # cuBLAS reads this when it makes its first handle, so it is set before that.
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.use_deterministic_algorithms(True)
            cudnn.benchmark, cudnn.deterministic = False, True
        with allowing_tf32(options.precision):
            yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(was_deterministic, warn_only=was_warn_only)
        cudnn.benchmark, cudnn.deterministic = previous
