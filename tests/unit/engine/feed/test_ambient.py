"""Tests of generators that are put aside: nobody who draws later can tell."""

from __future__ import annotations

import pickle
import random
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from epochal.engine.feed import host_generators as module
from epochal.engine.feed.host_generators import (
    HostGenerators,
    NoGeneratorMemory,
    mix_seed,
    seed_host_generators,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def draw() -> list[float]:
    """Numbers of every generator; of numpy also one of those that it makes in pairs."""
    return [random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn(), draw_torch()]


def draw_torch() -> float:
    return torch.rand(()).item()


DRAWS: dict[str, Callable[[], object]] = {
    "random": random.random,
    "random.gauss": lambda: random.gauss(0, 1),
    "numpy": np.random.rand,
    "numpy's normal": np.random.randn,
    "numpy's seed": lambda: np.random.seed(5),
    "torch": draw_torch,
    "torch's normal": lambda: torch.randn(1),
    "torch's seed": lambda: torch.manual_seed(5),
    "a round of random": lambda: [random.getrandbits(32) for _ in range(624)],
    "a round of numpy": lambda: np.random.randint(0, 2**32, 624, dtype=np.uint32),
    "a round of torch": lambda: torch.rand(624),
}


@pytest.fixture(params=["seen", "unseen"])
def ambient(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> HostGenerators:
    """One that sees the memory of generators, and one that must ask them for their states."""
    if request.param == "unseen":
        monkeypatch.setattr(
            module,
            "find_generator_memory",
            lambda: NoGeneratorMemory(np.random.get_bit_generator()),
        )
    return HostGenerators()


def draw_spares(count: int) -> None:
    """Draw normal numbers, which are made in pairs: an odd number of them leaves a spare one."""
    np.random.randn(count)
    for _ in range(count):
        random.gauss(0, 1)
        torch.randn(1)


@pytest.mark.parametrize("spares", [0, 1])
@pytest.mark.parametrize("kind", DRAWS)
def test_what_was_taken_can_be_put_back(kind: str, spares: int, ambient: HostGenerators) -> None:
    seed_host_generators(1)
    draw_spares(spares)
    for _ in range(3):
        states = ambient.take()
        DRAWS[kind]()
        ambient.put(states)
        expected = draw()
        ambient.put(states)
        DRAWS[kind]()
        ambient.put(states)
        assert draw() == expected


@pytest.mark.parametrize("spares", [0, 1])
@pytest.mark.parametrize("kind", DRAWS)
def test_every_draw_is_noticed(kind: str, spares: int, ambient: HostGenerators) -> None:
    seed_host_generators(1)
    draw_spares(spares)
    for _ in range(3):
        states = ambient.take()
        assert states.equals(ambient.take())
        DRAWS[kind]()
        assert not states.equals(ambient.take())
        if "seed" in kind:
            break


@pytest.mark.parametrize("spares", [0, 1])
@pytest.mark.parametrize("kind", DRAWS)
def test_every_draw_between_beginning_and_end_is_noticed(kind: str, spares: int) -> None:
    seed_host_generators(1)
    draw_spares(spares)
    ambient = HostGenerators()
    for _ in range(3):
        before = HostGenerators().take()
        states = ambient.begin(9)
        assert states is not None
        assert torch.initial_seed() == 9
        assert ambient.end(9, states)
        assert torch.initial_seed() == 1
        states = ambient.begin(9)
        assert states is not None
        DRAWS[kind]()
        assert not ambient.end(9, states)
        assert torch.initial_seed() == 1
        assert before.equals(HostGenerators().take())


def test_nothing_begins_where_draws_could_not_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        module, "find_generator_memory", lambda: NoGeneratorMemory(np.random.get_bit_generator())
    )
    torch.manual_seed(1)
    assert HostGenerators().begin(9) is None
    assert torch.initial_seed() == 1


def test_one_that_went_to_another_process_looks_at_the_memory_there() -> None:
    one = HostGenerators()
    one.take()
    other = pickle.loads(pickle.dumps(one))
    assert other.take().equals(one.take())


def test_two_takers_do_not_mislead_each_other() -> None:
    one, other = HostGenerators(), HostGenerators()
    states = one.take()
    np.random.rand()
    later = other.take()
    one.put(states)
    assert not states.equals(later)
    other.put(later)
    expected = np.random.rand()
    one.put(states)
    other.put(later)
    assert np.random.rand() == expected


def test_a_block_apart_draws_by_its_seed_and_leaves_no_trace(ambient: HostGenerators) -> None:
    seed_host_generators(7)
    expected = draw()
    seed_host_generators(3)
    before = ambient.take()
    for _ in range(2):
        with ambient.apart(7):
            assert draw() == expected
        assert before.equals(ambient.take())


def test_an_error_in_a_block_apart_leaves_no_trace_either(ambient: HostGenerators) -> None:
    before = ambient.take()
    with pytest.raises(ZeroDivisionError), ambient.apart(7):
        draw()[0] / 0
    assert before.equals(ambient.take())


def test_another_algorithm_of_numpy_is_left_alone() -> None:
    usual = np.random.get_bit_generator()
    try:
        np.random.set_bit_generator(np.random.PCG64(3))
        with HostGenerators().apart(1):
            random.random()
        assert np.random.rand() == np.random.RandomState(np.random.PCG64(3)).rand()
    finally:
        np.random.set_bit_generator(usual)


def test_an_exchanged_generator_of_numpy_is_seen_from_then_on() -> None:
    usual, ambient = np.random.get_bit_generator(), HostGenerators()
    ambient.take()
    try:
        np.random.set_bit_generator(np.random.MT19937(3))
        for _ in range(2):
            states = ambient.begin(9)
            assert states is not None
            np.random.rand()
            assert not ambient.end(9, states)
        assert np.random.rand() == np.random.RandomState(np.random.MT19937(3)).rand()
        states = ambient.take()
        np.random.set_bit_generator(np.random.MT19937(4))
        ambient.put(states)
        states = ambient.take()
        np.random.set_bit_generator(np.random.PCG64(3))
        ambient.put(states)
        assert ambient.begin(9) is None
    finally:
        np.random.set_bit_generator(usual)
    assert ambient.begin(9) is not None


def test_mixed_numbers_differ_and_never_change() -> None:
    numbers = {mix_seed(seed, number) for seed in range(50) for number in range(-1, 50)}
    assert len(numbers) == 50 * 51
    assert all(0 <= number < 2**64 for number in numbers)
    assert mix_seed(0, 0) == 0xE220A8397B1DCDAF  # the first number of splitmix64


def test_neighbouring_seeds_give_numbers_without_a_pattern() -> None:
    draws = []
    with HostGenerators().apart(0):
        for number in range(400):
            seed_host_generators(mix_seed(0, number))
            draws.append([random.random(), np.random.rand(), draw_torch()])
    table = torch.tensor(draws)
    assert ((table.mean(0) - 0.5).abs() < 0.06).all()
    assert (torch.corrcoef(table.T).fill_diagonal_(0).abs() < 0.2).all()
