"""The values that a sweep may propose."""

from __future__ import annotations

import math
from collections import Counter

from epochal.sweep.space import NormalRange, Space, SweepParameter, ValueChoice, ValueRange

SGD = SweepParameter("optim.momentum", ValueRange(0.5, 0.9), {"optim.type": ("sgd",)})
OPTIM = SweepParameter("optim.type", ValueChoice(("sgd", "adam")))
LR = SweepParameter("optim.lr", ValueRange(1e-4, 1e-1, is_log=True, points=4))


def test_positions_from_0_to_1_cover_each_range_and_never_leave_it() -> None:
    cases = {
        ValueRange(0.0, 2.0): (0.0, 2.0),
        ValueRange(1e-5, 1e-1, is_log=True): (1e-5, 1e-1),
        ValueRange(1, 4, is_integer=True): (1, 4),
        ValueRange(1, 64, is_log=True, is_integer=True): (1, 64),
        ValueRange(0.0, 0.5, step=0.1): (0.0, 0.5),
        ValueRange(0, 10, step=5, is_integer=True): (0, 10),
    }
    for values, (low, high) in cases.items():
        found = [values.at(index / 10_000) for index in range(10_000)]
        assert min(found) == low, values
        assert math.isclose(max(found), high, rel_tol=2e-3), values
        assert max(found) <= high, values
        assert found == sorted(found), values
        if values.is_integer:
            assert {type(value) for value in found} == {int}, values


def test_each_integer_and_each_step_is_equally_likely() -> None:
    for values in (ValueRange(1, 4, is_integer=True), ValueRange(0.0, 0.3, step=0.1)):
        counts = Counter(values.at(index / 4000) for index in range(4000))
        assert set(counts.values()) == {1000}, values
    assert [ValueRange(0.0, 0.3, step=0.1).at(one) for one in (0, 0.3, 0.6, 0.9)] == [
        *(0.0, 0.1, 0.2, 0.3)  # as a user writes them, not 0.30000000000000004
    ]


def test_choices_follow_their_weights() -> None:
    found = Counter(ValueChoice(("a", "b"), (3.0, 1.0)).at(index / 100) for index in range(100))
    assert found == {"a": 75, "b": 25}
    assert ValueChoice(("a", "b")).at(0.9999999999999999) == "b"


def test_a_normal_range_gives_quantiles_and_finds_them_again() -> None:
    values = NormalRange(0.0, 1.0)
    assert math.isclose(values.at(0.975), 1.96, rel_tol=1e-3)
    assert math.isclose(NormalRange(0.0, 1.0, is_log=True).at(0.5), 1.0)
    assert math.isclose(values.find_position(values.at(0.3)), 0.3)
    assert NormalRange(0.0, 1.0, step=0.5).at(0.975) == 2.0


def test_a_grid_has_every_combination_once_and_skips_what_does_not_apply() -> None:
    space = Space((OPTIM, SweepParameter("optim.momentum", ValueChoice((0.8, 0.9)), SGD.when)))
    assert list(space.iter_grid()) == [
        {"optim.type": "sgd", "optim.momentum": 0.8},
        {"optim.type": "sgd", "optim.momentum": 0.9},
        {"optim.type": "adam"},
    ]
    spots = LR.values.grid()
    assert [f"{one:.4g}" for one in spots] == ["0.0001", "0.001", "0.01", "0.1"]
    assert ValueRange(0, 1, is_integer=True, points=5).grid() == (0, 1)
    assert ValueRange(0.0, 1.0).grid() == ()


def test_a_condition_may_read_a_value_of_the_config() -> None:
    for kind, expected in (("sgd", 1), ("adam", 0)):
        space = Space((SGD,), {"optim.type": kind})
        assert len(space.at([0.5])) == expected, kind


def test_probes_use_every_choice_and_both_ends_of_every_range() -> None:
    probes = [values for _, values in Space((OPTIM, SGD, LR)).iter_probes()]
    assert {one["optim.type"] for one in probes} == {"sgd", "adam"}
    assert {one.get("optim.momentum") for one in probes} == {None, 0.5, 0.9}
    assert {one["optim.lr"] for one in probes} == {1e-4, 1e-1}
    assert all(("optim.momentum" in one) == (one["optim.type"] == "sgd") for one in probes)
