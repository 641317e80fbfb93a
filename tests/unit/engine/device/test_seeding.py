"""Tests of random numbers as functions of the seed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from epochal.engine.device.seeding import (
    applying_engine_options,
    derive_seed,
    find_used_generator,
    generator_states,
    read_generator_state,
    restore_generators,
    seed_everything,
    seeded,
    set_generator_state,
)
from epochal.engine.interfaces.options import EngineOptions

if TYPE_CHECKING:
    from collections.abc import Callable


def draws() -> tuple[float, float, float]:
    return random.random(), float(np.random.random()), torch.rand(()).item()


def test_derived_seeds_depend_on_every_name_and_never_change() -> None:
    assert derive_seed(0, "model") == 5628843996446412408
    seeds = {
        derive_seed(0, "model"),
        derive_seed(1, "model"),
        derive_seed(0, "data"),
        derive_seed(0, "model", 1),
    }
    assert len(seeds) == 4
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_names_do_not_run_together() -> None:
    assert derive_seed(0, "a", "b") != derive_seed(0, "ab")
    assert derive_seed(1, 2) != derive_seed(12)


def test_the_same_seed_gives_the_same_draws_in_all_libraries() -> None:
    with seeded(5):
        first = draws()
    with seeded(5):
        assert draws() == first
    with seeded(6):
        assert draws() != first


def test_generators_of_devices_are_seeded_where_there_are_devices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seeds: list[int] = []
    monkeypatch.setattr(torch, "manual_seed", seeds.append)
    for device, expected in ((None, []), (torch.device("cuda"), [5])):
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda found=device: found)
        seed_everything(5)
        assert seeds == expected, device


def test_generators_are_restored_after_a_block_even_if_it_raises() -> None:
    seed_everything(1)
    expected = draws()
    seed_everything(1)
    with pytest.raises(ZeroDivisionError), seeded(9):
        [draws(), 1 / 0]
    assert draws() == expected


def test_the_library_whose_global_generator_was_drawn_from_is_named() -> None:
    libraries: dict[str, Callable[[], object]] = {
        "Python's random": random.random,
        "numpy.random": np.random.rand,
        "torch on the CPU": lambda: torch.rand(1),
        "": lambda: np.random.default_rng(0).random(),
    }
    for library, draw in libraries.items():
        before = generator_states()
        draw()
        assert find_used_generator(before, generator_states()) == library
        restore_generators(before)
        assert find_used_generator(before, generator_states()) == ""


def test_the_state_of_a_generator_object_is_read_and_set() -> None:
    generators: list[tuple[Any, Callable[[Any], Any]]] = [
        (random.Random(1), lambda one: one.random()),
        (np.random.default_rng(1), lambda one: one.random()),
        (np.random.RandomState(1), lambda one: one.randn()),
        (torch.Generator().manual_seed(1), lambda one: torch.rand((), generator=one).item()),
    ]
    for generator, draw in generators:
        state = read_generator_state(generator)
        drawn = draw(generator)
        set_generator_state(generator, state)
        assert draw(generator) == drawn, generator
    for other in (random.SystemRandom(), None, 3, "text"):
        assert read_generator_state(other) is None


def test_engine_options_apply_to_a_block_only() -> None:
    threads = torch.get_num_threads()
    with applying_engine_options(EngineOptions(deterministic=True, num_threads=threads + 1)):
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.get_num_threads() == threads + 1
        assert torch.backends.cudnn.deterministic
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.get_num_threads() == threads


def test_default_engine_options_change_nothing() -> None:
    with applying_engine_options(EngineOptions()):
        assert not torch.are_deterministic_algorithms_enabled()
