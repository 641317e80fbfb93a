"""What samplers propose."""

from __future__ import annotations

import random
import sys

import pytest

from epochal.sweep.sampling import Observation, OptunaSampler, RandomSampler, create_sampler
from epochal.sweep.space import NormalRange, Space, SweepParameter, ValueChoice, ValueRange, Values

SPACE = Space(
    (
        SweepParameter("type", ValueChoice(("sgd", "adam"))),
        SweepParameter("momentum", ValueRange(0.0, 0.9), {"type": ("sgd",)}),
        SweepParameter("lr", ValueRange(1e-4, 1.0, is_log=True)),
        SweepParameter("width", ValueRange(1, 64, is_integer=True)),
        SweepParameter("gain", NormalRange(0.0, 1.0)),
    )
)
PLANE = Space(
    (SweepParameter("x", ValueRange(-5.0, 5.0)), SweepParameter("y", ValueRange(-5.0, 5.0)))
)


def _any(_: Values) -> bool:
    return True


def _is_narrow(values: Values) -> bool:
    return bool(values["width"] < 32)


@pytest.mark.parametrize("method", ["random", "quasi-random", "tpe", "gp"])
def test_proposals_lie_in_the_space_and_meet_the_constraints(method: str) -> None:
    sampler = create_sampler(
        method, SPACE, is_allowed=_is_narrow, directions=["min"], seed=0, observed={}
    )
    kinds = set()
    for number in range(12):
        values = sampler.ask(number)
        assert values is not None
        assert 1e-4 <= values["lr"] <= 1.0
        assert values["width"] in range(1, 32)
        assert ("momentum" in values) == (values["type"] == "sgd")
        kinds.add(values["type"])
        sampler.tell(Observation(number, values, (values["lr"],)))
    assert kinds == {"sgd", "adam"}


@pytest.mark.parametrize("method", ["grid", "random", "quasi-random", "tpe", "gp"])
def test_a_sweep_that_continues_proposes_what_it_would_have_proposed(method: str) -> None:
    space = Space(
        (SweepParameter("x", ValueRange(-5, 5, step=1)), SweepParameter("y", ValueRange(0.0, 1.0)))
    )
    if method == "grid":
        space = Space(
            (
                SweepParameter("x", ValueRange(0, 5, is_integer=True)),
                SweepParameter("y", ValueChoice((1, 2, 3))),
            )
        )
    whole = create_sampler(method, space, is_allowed=_any, directions=["min"], seed=3, observed={})
    told: list[Observation] = []
    for number in range(16):
        values = whole.ask(number)
        assert values is not None
        told.append(Observation(number, values, (values["x"] ** 2 + values["y"],)))
        whole.tell(told[-1])
    observed = {one.number: one.values for one in told[:13]}
    again = create_sampler(
        method, space, is_allowed=_any, directions=["min"], seed=3, observed=observed
    )
    for one in told[:13]:
        again.tell(one)
    for one in told[13:]:
        assert again.ask(one.number) == one.values
        again.tell(one)


def test_cma_es_continues_near_the_best_trials() -> None:
    sampler = OptunaSampler("cma-es", PLANE, _any, directions=["min"])
    for number in range(30):
        x, y = number % 6 - 2.5, number // 6 - 2.5
        sampler.tell(Observation(number, {"x": x, "y": y}, ((x - 2) ** 2 + (y - 1) ** 2,)))
    asked = [sampler.ask(number) or {} for number in range(30, 40)]
    near = [abs(one["x"] - 2) < 1.5 and abs(one["y"] - 1) < 1.5 for one in asked]
    assert sum(near) >= 5  # random values: one of ten


def test_a_grid_ends_and_skips_trials_that_exist() -> None:
    space = Space((SweepParameter("x", ValueChoice((1, 2, 3))),))
    sampler = create_sampler(
        "grid",
        space,
        is_allowed=lambda v: v["x"] != 3,
        directions=["min"],
        seed=0,
        observed={0: {"x": 1}},
    )
    assert [sampler.ask(1), sampler.ask(2)] == [{"x": 2}, None]


def test_constraints_that_nothing_meets_end_the_search() -> None:
    assert RandomSampler(PLANE, lambda _: False).ask(0) is None


def test_quasi_random_values_cover_the_plane_more_evenly_than_random_ones() -> None:
    def count_cells(method: str) -> int:
        sampler = create_sampler(
            method, PLANE, is_allowed=_any, directions=["min"], seed=0, observed={}
        )
        asked = [sampler.ask(number) for number in range(64)]
        return len({(int(one["x"] * 0.8 + 4), int(one["y"] * 0.8 + 4)) for one in asked if one})

    assert count_cells("quasi-random") > count_cells("random") + 5


def test_tpe_finds_a_minimum_that_random_search_misses() -> None:
    def search(method: str) -> float:
        sampler = create_sampler(
            method, PLANE, is_allowed=_any, directions=["min"], seed=1, observed={}
        )
        best = float("inf")
        for number in range(60):
            values = sampler.ask(number) or {}
            found = (values["x"] - 3) ** 2 + (values["y"] + 2) ** 2
            sampler.tell(Observation(number, values, (found,)))
            best = min(best, found)
        return best

    assert search("tpe") < search("random") / 2


def test_optuna_learns_from_failed_pruned_and_adopted_trials() -> None:
    sampler = OptunaSampler("tpe", PLANE, _any, directions=["min"], has_constraints=True)
    sampler.adopt(0, {"x": 1.0, "y": 1.0})
    sampler.adopt(1, {"x": 99.0, "y": 1.0})  # outside of the space that is searched now
    sampler.tell(Observation(0, {"x": 1.0, "y": 1.0}, (2.0,)))
    sampler.tell(Observation(1, {"x": 99.0, "y": 1.0}, (2.0,)))
    sampler.tell(Observation(2, {"x": 2.0, "y": 1.0}, None))
    sampler.tell(Observation(3, {"x": 2.0, "y": 1.0}, (5.0,), is_pruned=True))
    sampler.tell(Observation(4, {"x": 3.0, "y": 1.0}, (1.0,), violation=2.0))
    states = [one.state.name for one in sampler._study.trials]
    assert states == ["COMPLETE", "FAIL", "PRUNED", "COMPLETE"]
    assert sampler.ask(5) is not None


def test_random_trials_depend_on_seed_and_number_only() -> None:
    first, second = RandomSampler(SPACE, _any, 1), RandomSampler(SPACE, _any, 1)
    numbers = [4, 2, 9]
    random.Random(0).shuffle(numbers)
    assert {n: first.ask(n) for n in (2, 4, 9)} == {n: second.ask(n) for n in numbers}
    assert RandomSampler(SPACE, _any, 2).ask(2) != first.ask(2)


def test_grid_random_and_quasi_random_need_no_optuna(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    for method in ("grid", "random", "quasi-random"):
        space = Space((SweepParameter("x", ValueRange(0.0, 1.0, points=3)),))
        sampler = create_sampler(
            method, space, is_allowed=_any, directions=["min"], seed=0, observed={}
        )
        assert sampler.ask(0) is not None, method
    with pytest.raises(ImportError):
        OptunaSampler("tpe", PLANE, _any, directions=["min"])
