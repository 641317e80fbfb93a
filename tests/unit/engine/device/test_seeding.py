"""Tests of random numbers as functions of the seed."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from epochal.engine.device.seeding import (
    applying_engine_options,
    derive_seed,
    seed_everything,
    seeded,
)
from epochal.engine.interfaces.options import EngineOptions


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


def test_generators_are_put_back_after_a_block_even_if_it_raises() -> None:
    seed_everything(1)
    expected = draws()
    seed_everything(1)
    with pytest.raises(ZeroDivisionError), seeded(9):
        [draws(), 1 / 0]
    assert draws() == expected


def test_the_machine_is_set_for_a_block_and_put_back() -> None:
    threads = torch.get_num_threads()
    with applying_engine_options(EngineOptions(deterministic=True, num_threads=threads + 1)):
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.get_num_threads() == threads + 1
        assert torch.backends.cudnn.deterministic
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.get_num_threads() == threads


def test_without_options_the_machine_stays_as_it_is() -> None:
    with applying_engine_options(EngineOptions()):
        assert not torch.are_deterministic_algorithms_enabled()
