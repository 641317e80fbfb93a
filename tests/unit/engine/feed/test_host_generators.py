"""Tests of global generators around the reading of batches: every draw is noticed and undone."""

from __future__ import annotations

import pickle
import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from epochal.engine.feed import host_generators as module
from epochal.engine.feed.host_generators import HostGenerators, mix_seed, seed_host_generators

if TYPE_CHECKING:
    from collections.abc import Callable


def draw() -> list[float]:
    """Numbers of every generator, with those that are made in pairs."""
    normal = [random.gauss(0, 1), np.random.randn(), torch.randn(()).item()]
    return [random.random(), np.random.rand(), torch.rand(()).item(), *normal]


DRAWS: dict[str, Callable[[], object]] = {
    "random": random.random,
    "random.gauss": lambda: random.gauss(0, 1),
    "random.seed": lambda: random.seed(5),
    "numpy": np.random.rand,
    "numpy's normal": np.random.randn,
    "numpy's seed": lambda: np.random.seed(5),
    "torch": lambda: torch.rand(()),
    "torch's normal": lambda: torch.randn(1),
    "torch's normal of 64 bits": lambda: torch.randn(1, dtype=torch.float64),
    "torch's seed": lambda: torch.manual_seed(5),
    "a round of random": lambda: [random.getrandbits(32) for _ in range(624)],
    "a round of numpy": lambda: np.random.randint(0, 2**32, 624, dtype=np.uint32),
    "a round of torch": lambda: torch.rand(624),
}


def start(spares: int) -> None:
    """Seed everything; an odd number of normal draws leaves a spare number of a pair."""
    seed_host_generators(1)
    np.random.randn(spares)
    for _ in range(spares):
        random.gauss(0, 1)
        torch.randn(1)


def hide_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.sys, "implementation", SimpleNamespace(name="other"))
    monkeypatch.setattr(module, "_find_spare_normal", lambda: None)
    monkeypatch.setattr(module, "_find_torch_offset", lambda: None)


@pytest.mark.parametrize("spares", [0, 1])
@pytest.mark.parametrize("is_readable", [True, False])
def test_every_draw_is_noticed_and_undone(
    is_readable: bool, spares: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_readable:
        hide_memory(monkeypatch)
    for name, draw_some in DRAWS.items():
        generators = HostGenerators()
        start(spares)
        for _ in range(3):
            states = generators.take()
            assert states.equals(generators.take()), name
            draw_some()
            assert "seed" in name or not states.equals(generators.take()), name
            generators.restore(states)
            assert torch.initial_seed() == 1, name
            expected = draw()
            generators.restore(states)
            draw_some()
            generators.restore(states)
            assert draw() == expected, name


@pytest.mark.parametrize("is_torch_readable", [True, False])
def test_every_draw_between_begin_and_end_is_noticed(
    is_torch_readable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert module._find_torch_offset() is not None
    if not is_torch_readable:
        monkeypatch.setattr(module, "_address_of", lambda generator: 0)
    for spares in [0, 1]:
        for name, draw_some in DRAWS.items():
            generators = HostGenerators()
            start(spares)
            for _ in range(3):
                before = HostGenerators().take()
                states = generators.begin(9)
                assert states is not None, spares
                assert torch.initial_seed() == 9, spares
                assert generators.end(states), name
                states = generators.begin(9)
                assert states is not None, spares
                draw_some()
                assert not generators.end(states), name
                assert torch.initial_seed() == 1, name
                assert before.equals(HostGenerators().take()), name


def test_a_block_inside_another_one_is_no_draw() -> None:
    for spares in [0, 1]:
        start(spares)
        outer, inner = HostGenerators(), HostGenerators()
        states = outer.begin(9)
        assert states is not None
        with inner.seeded(5):
            draw()
        inside = inner.begin(7)
        assert inside is not None
        assert inner.end(inside), spares
        assert outer.end(states), spares


HIDDEN: dict[str, tuple[Any, str, Any]] = {
    "another Python": (module.sys, "implementation", SimpleNamespace(name="other")),
    "a small generator of Python": (module, "_OBJECT_HEADER_BYTES", 10**6),
    "other words of Python": (random, "getstate", lambda: (3, (0,) * 625, None)),
    "another algorithm of numpy": (module, "get_bit_generator", np.random.PCG64),
    "other words of numpy": (module.struct, "pack", lambda *_: b""),
    "no spare number of numpy": (module, "_find_spare_normal", lambda: None),
}


def test_nothing_is_watched_where_draws_could_not_be_noticed() -> None:
    torch.manual_seed(1)
    for name, hidden in HIDDEN.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(*hidden)
            generators = HostGenerators()
            assert generators.begin(9) is None, name
        assert torch.initial_seed() == 1, name


def test_a_copy_in_another_process_reads_the_memory_there() -> None:
    one = HostGenerators()
    one.take()
    other = pickle.loads(pickle.dumps(one))
    assert other.take().equals(one.take())


def test_two_objects_do_not_mislead_each_other() -> None:
    one, other = HostGenerators(), HostGenerators()
    states = one.take()
    np.random.rand()
    later = other.take()
    one.restore(states)
    assert not states.equals(later)
    other.restore(later)
    expected = np.random.rand()
    one.restore(states)
    other.restore(later)
    assert np.random.rand() == expected


@pytest.mark.parametrize("is_readable", [True, False])
def test_a_seeded_block_draws_by_its_seed_and_leaves_no_trace(
    is_readable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_readable:
        hide_memory(monkeypatch)
    generators = HostGenerators()
    seed_host_generators(7)
    expected = draw()
    seed_host_generators(3)
    before = generators.take()
    for _ in range(2):
        with generators.seeded(7):
            assert draw() == expected
        assert before.equals(generators.take())
    with pytest.raises(ZeroDivisionError), generators.seeded(7):
        draw()[0] / 0
    assert before.equals(generators.take())


def test_another_algorithm_of_numpy_is_left_alone() -> None:
    usual = np.random.get_bit_generator()
    try:
        np.random.set_bit_generator(np.random.PCG64(3))
        with HostGenerators().seeded(1):
            random.random()
        assert np.random.rand() == np.random.RandomState(np.random.PCG64(3)).rand()
    finally:
        np.random.set_bit_generator(usual)


def test_a_replaced_generator_of_numpy_is_watched_from_then_on() -> None:
    usual, generators = np.random.get_bit_generator(), HostGenerators()
    generators.take()
    try:
        np.random.set_bit_generator(np.random.MT19937(3))
        for _ in range(2):
            states = generators.begin(9)
            assert states is not None
            np.random.rand()
            assert not generators.end(states)
        assert np.random.rand() == np.random.RandomState(np.random.MT19937(3)).rand()
        states = generators.take()
        np.random.set_bit_generator(np.random.MT19937(4))
        generators.restore(states)
        states = generators.take()
        np.random.set_bit_generator(np.random.PCG64(3))
        generators.restore(states)
        assert generators.begin(9) is None
    finally:
        np.random.set_bit_generator(usual)
    assert generators.begin(9) is not None


def test_mixed_seeds_differ_and_never_change() -> None:
    numbers = {mix_seed(seed, number) for seed in range(50) for number in range(-1, 50)}
    assert len(numbers) == 50 * 51
    assert all(0 <= number < 2**64 for number in numbers)
    assert mix_seed(0, 0) == 0xE220A8397B1DCDAF  # the first number of splitmix64


def test_neighbouring_seeds_give_numbers_without_a_pattern() -> None:
    draws = []
    with HostGenerators().seeded(0):
        for number in range(400):
            seed_host_generators(mix_seed(0, number))
            draws.append([random.random(), np.random.rand(), torch.rand(()).item()])
    table = torch.tensor(draws)
    assert ((table.mean(0) - 0.5).abs() < 0.06).all()
    assert (torch.corrcoef(table.T).fill_diagonal_(0).abs() < 0.2).all()
