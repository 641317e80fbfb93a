"""Tests of looking at generators: what moves one is seen, and where that is unknown, nothing is."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from epochal.engine.feed import host_generators as module
from epochal.engine.feed.host_generators import (
    NUMPY,
    PYTHON,
    TORCH,
    GeneratorMemory,
    NoGeneratorMemory,
    find_generator_memory,
)

if TYPE_CHECKING:
    from collections.abc import Callable

MOVES: dict[str, tuple[slice, Callable[[], object]]] = {
    "random": (PYTHON, random.random),
    "random.gauss": (PYTHON, lambda: random.gauss(0, 1)),
    "random.seed": (PYTHON, lambda: random.seed(random.random())),
    "numpy": (NUMPY, np.random.rand),
    "numpy's normal": (NUMPY, np.random.randn),
    "numpy's seed": (NUMPY, lambda: np.random.seed(np.random.randint(2**31))),
    "torch": (TORCH, lambda: torch.rand(1)),
    "torch's normal": (TORCH, lambda: torch.randn(1)),
    "torch's normal of 64 bits": (TORCH, lambda: torch.randn(1, dtype=torch.float64)),
    "torch's seed": (TORCH, lambda: torch.manual_seed(torch.initial_seed() + 2**32)),
}


@pytest.mark.parametrize("kind", MOVES)
def test_a_move_is_seen_where_it_happens_and_nowhere_else(kind: str) -> None:
    part, move = MOVES[kind]
    seen = find_generator_memory()
    for _ in range(4):  # normal numbers are made in pairs
        before = seen.look()
        assert seen.look() == before
        move()
        after = seen.look()
        for other in (PYTHON, NUMPY, TORCH):
            assert (after[other] != before[other]) == (other == part)


def test_the_seed_of_torch_can_be_changed_alone() -> None:
    seen = find_generator_memory()
    assert isinstance(seen, GeneratorMemory)
    state = torch.manual_seed(7).get_state()
    seen.seed.value = 2**64 - 5
    assert torch.initial_seed() == 2**64 - 5
    seen.seed.value = 7
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("spares", [0, 1])
def test_a_state_of_numpy_is_put_back_with_its_spare_number(spares: int) -> None:
    np.random.seed(1)
    np.random.randn(spares)
    state = np.random.get_state()
    expected = np.random.randn(5).tolist()
    for one in (find_generator_memory(), NoGeneratorMemory(None)):
        for draws in (1, 2):
            np.random.randn(draws)
            one.put_numpy(state)
            assert np.random.randn(5).tolist() == expected


def test_whoever_is_blind_never_sees_the_same() -> None:
    blind = NoGeneratorMemory(None)
    one, other = blind.look(), blind.look()
    assert all(one[part] != other[part] for part in (PYTHON, NUMPY, TORCH))


HIDDEN: dict[str, tuple[Any, str, Any]] = {
    "another Python": (module.sys, "implementation", SimpleNamespace(name="other")),
    "a small generator of Python": (module, "_HEAD", 10**6),
    "other words of Python": (random, "getstate", lambda: (3, (0,) * 625, None)),
    "another algorithm of numpy": (module, "get_bit_generator", np.random.PCG64),
    "other words of numpy": (module.np.random, "MT19937", SimpleNamespace),
    "no spare number of numpy": (module, "_find_numpy_offset", lambda: None),
    "no seed in torch's memory": (module, "_TORCH_HEAD", 8),
    "no words in torch's memory": (module, "_views_of_torch", lambda _: (b"", b"")),
    "no memory of torch": (
        torch,
        "Generator",
        lambda _: SimpleNamespace(manual_seed=lambda _: SimpleNamespace()),
    ),
    "a seed of torch that is a copy": (
        module,
        "_TRIAL_SEEDS",
        (0x5EED_0F7E_57ED_5EED, 2**64 + 1),
    ),
}


@pytest.mark.parametrize("kind", HIDDEN)
def test_where_not_everything_can_be_seen_nothing_is(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(*HIDDEN[kind])
        found = find_generator_memory()
    assert isinstance(found, NoGeneratorMemory)
