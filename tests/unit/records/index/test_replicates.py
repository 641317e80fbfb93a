"""Which runs are replicates, and what their mean is worth."""

from __future__ import annotations

import math
from typing import Any

import pytest
from scipy import stats

from epochal.records.index.replicates import (
    estimate_mean,
    latest_per_seed,
    replicate_key,
    t_critical_value,
)


def origins(**values: object) -> dict[str, Any]:
    """A provenance that says nothing but the values; ``__`` stands for a dot."""
    return {key.replace("__", "."): [{"value": value}] for key, value in values.items()}


RUN = {"project": "digits", "runner": "train", "epochal": "1", "torch": "2", "seed": 0}
BASE = origins(seed=0, tag="a", optim__lr=0.1, train__for="3ep")


def test_seed_names_and_places_do_not_make_another_group() -> None:
    for other in [
        origins(seed=7),
        origins(tag="b", desc="again"),
        origins(log__level="debug", record__log_dir="elsewhere", checkpoint__every="2ep"),
    ]:
        assert replicate_key(RUN, BASE | other) == replicate_key(RUN, BASE)


def test_any_other_value_makes_another_group() -> None:
    for other in [origins(optim__lr=0.2), origins(seeds=1), origins(optim__eps=0)]:
        assert replicate_key(RUN, BASE | other) != replicate_key(RUN, BASE)


def test_value_that_the_seed_decides_does_not_make_another_group() -> None:
    first, second = (
        BASE | {"task.split_seed": [{"value": seed, "text": "${seed}"}]} for seed in (1, 2)
    )
    assert replicate_key(RUN, first) == replicate_key(RUN, second)


def test_group_does_not_depend_on_the_order_of_keys_nor_on_how_a_number_is_written() -> None:
    turned = dict(reversed(BASE.items()))
    whole, broken = origins(optim__momentum=1), origins(optim__momentum=1.0)
    assert replicate_key(RUN, turned | whole) == replicate_key(RUN, BASE | broken)


def test_truth_is_not_the_number_one() -> None:
    assert replicate_key(RUN, origins(a=True)) != replicate_key(RUN, origins(a=1))


def test_another_project_runner_or_version_makes_another_group() -> None:
    for name in ["project", "runner", "epochal", "torch"]:
        assert replicate_key({**RUN, name: "other"}, BASE) != replicate_key(RUN, BASE)


def attempt(number: int, **facts: object) -> dict[str, Any]:
    return {"attempt": number, **facts}


def test_other_code_makes_another_group() -> None:
    first, second = (
        {**RUN, "attempts": [attempt(0, code={"task.py": digest})]} for digest in ("aa", "bb")
    )
    assert replicate_key(first, BASE) != replicate_key(second, BASE)


def test_resuming_with_the_same_code_makes_no_other_group() -> None:
    code = {"task.py": "aa"}
    once = {**RUN, "attempts": [attempt(0, code=code)]}
    twice = {**RUN, "attempts": [attempt(0, code=code), attempt(1, code=code)]}
    assert replicate_key(once, BASE) == replicate_key(twice, BASE)


def test_change_while_going_on_makes_another_group_unless_it_is_only_a_name() -> None:
    plain = {**RUN, "attempts": [attempt(0), attempt(1)]}
    longer = {**RUN, "attempts": [attempt(0), attempt(1, overrides=["train.for=9ep"])]}
    named = {**RUN, "attempts": [attempt(0), attempt(1, overrides=["log.level=debug"])]}
    assert replicate_key(longer, BASE) != replicate_key(plain, BASE)
    assert replicate_key(named, BASE) == replicate_key(plain, BASE)


def test_run_whose_config_is_lost_belongs_to_no_group() -> None:
    for lost in [{}, {"optim.lr": []}, {"optim.lr": [3]}, {"optim.lr": "x"}]:
        assert replicate_key(RUN, lost) == ""


def test_damaged_value_is_left_out() -> None:
    assert replicate_key(RUN, BASE | {"x": [{}]}) == replicate_key(RUN, BASE)


def test_of_runs_with_the_same_seed_only_the_last_counts() -> None:
    assert latest_per_seed([1, 2, 1, 3, None, None]) == [1, 2, 3, 5]


def test_mean_is_shown_with_the_reach_of_its_interval() -> None:
    assert str(estimate_mean([0.5])) == "0.5"
    assert str(estimate_mean([0.5, 0.5])) == "0.5 ± 0"
    assert str(estimate_mean([0.91234, 0.92])) == "0.9162 ± 0.049"


def test_factor_is_that_of_scipy() -> None:
    for freedom in [*range(1, 40), 99, 100, 199, 200, 201, 500, 10_000, 10**7]:
        assert t_critical_value(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-10)


def test_mean_and_interval_are_those_of_scipy() -> None:
    for values in [
        [0.97, 0.98],
        [0.97, 0.98, 0.965, 0.981, 0.974],
        [1e-9, 2e-9, 4e-9],
        [1e9 + i for i in range(12)],
        [-3.0, 5.0, 5.0, 7.5],
    ]:
        found = estimate_mean(values)
        error = stats.sem(values)
        low, high = stats.t.interval(0.95, len(values) - 1, loc=found.mean, scale=error)
        assert found.mean == pytest.approx(sum(values) / len(values), rel=1e-14)
        assert (found.low, found.high) == pytest.approx((low, high), rel=1e-12)
        assert found.spread == pytest.approx(stats.tstd(values), rel=1e-12)
        assert found.half_width == pytest.approx((high - low) / 2, rel=1e-6)
        assert found.count == len(values)


def test_equal_values_have_no_spread() -> None:
    found = estimate_mean([0.1] * 3)
    assert (found.mean, found.spread) == pytest.approx((0.1, 0.0))
    assert found.low == found.mean == found.high


def test_one_value_has_no_interval() -> None:
    found = estimate_mean([0.5])
    assert (found.mean, found.count) == (0.5, 1)
    assert all(map(math.isnan, (found.low, found.high, found.spread, found.half_width)))


def test_no_value_has_no_mean() -> None:
    found = estimate_mean([])
    assert found.count == 0
    assert math.isnan(found.mean)


def test_diverged_run_is_not_hidden() -> None:
    for bad in [math.nan, math.inf]:
        found = estimate_mean([0.5, bad, 0.7])
        assert not math.isfinite(found.mean)
        assert math.isnan(found.high)


def test_huge_values_do_not_overflow() -> None:
    found = estimate_mean([1e308, -1e308, 1e308])
    assert math.isfinite(found.spread)
