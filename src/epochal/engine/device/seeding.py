"""Random numbers as functions of the seed: derived seeds, and generators put back in place."""

from __future__ import annotations

import hashlib
import os
import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from epochal.engine.device.precision import allowing_tf32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.engine.interfaces.options import EngineOptions


def derive_seed(seed: int, *names: str | int) -> int:
    """A seed of 63 bits that depends on ``seed`` and all names, the same everywhere."""
    text = "\x1f".join([str(int(seed)), *(str(name) for name in names)])
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def seed_everything(seed: int) -> None:
    """Seed the generators of Python, numpy and torch, on every device."""
    import numpy as np

    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Run a block under its own random numbers; afterwards all generators are as before."""
    states = generator_states()
    try:
        seed_everything(seed)
        yield
    finally:
        restore_generators(states)


def generator_states() -> dict[str, Any]:
    """The states of the generators of Python, numpy and torch, on every device in use."""
    import numpy as np

    states: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
    }
    # Asking a device that is not in use would start it, and take its memory.
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch has no types here
        states["cuda"] = torch.cuda.get_rng_state_all()
    return states


def restore_generators(states: dict[str, Any]) -> None:
    """Put generators into the states they had."""
    import numpy as np

    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    torch.set_rng_state(states["torch"])
    if "cuda" in states:
        torch.cuda.set_rng_state_all(states["cuda"])


@contextmanager
def applying_engine_options(options: EngineOptions) -> Iterator[None]:
    """Apply the engine's options to this process for a block, and take them back."""
    threads = torch.get_num_threads()
    was_deterministic = torch.are_deterministic_algorithms_enabled()
    was_warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    cudnn = torch.backends.cudnn
    kept = cudnn.benchmark, cudnn.deterministic
    try:
        if options.num_threads is not None:
            torch.set_num_threads(options.num_threads)
        if options.deterministic:
            # cuBLAS reads this when its first handle is made, so it must stand before that.
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.use_deterministic_algorithms(True)
            cudnn.benchmark, cudnn.deterministic = False, True
        with allowing_tf32(options.precision):
            yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(was_deterministic, warn_only=was_warn_only)
        cudnn.benchmark, cudnn.deterministic = kept
