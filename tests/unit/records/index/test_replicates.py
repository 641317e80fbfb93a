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


def test_seed_names_and_places_do_not_change_the_key() -> None:
    key = replicate_key(RUN, BASE)
    for other in (
        origins(seed=7),
        origins(tag="b", desc="again"),
        origins(log__level="debug", record__log_dir="elsewhere", checkpoint__every="2ep"),
        {"x": [{}]},  # damaged
    ):
        assert replicate_key(RUN, BASE | other) == key, other
    assert replicate_key(RUN, dict(reversed(BASE.items()))) == key
    first, second = (
        BASE | {"task.split_seed": [{"value": seed, "text": "${seed}"}]} for seed in (1, 2)
    )
    assert replicate_key(RUN, first) == replicate_key(RUN, second)
    whole, broken = origins(optim__momentum=1), origins(optim__momentum=1.0)
    assert replicate_key(RUN, BASE | whole) == replicate_key(RUN, BASE | broken)


def test_other_values_projects_and_versions_change_the_key() -> None:
    key = replicate_key(RUN, BASE)
    for other in (origins(optim__lr=0.2), origins(seeds=1), origins(optim__eps=0)):
        assert replicate_key(RUN, BASE | other) != key, other
    for name in ("project", "runner", "epochal", "torch"):
        assert replicate_key({**RUN, name: "other"}, BASE) != key, name
    assert replicate_key(RUN, origins(a=True)) != replicate_key(RUN, origins(a=1))


def test_attempts_change_the_key_if_they_change_code_or_values() -> None:
    def key(*attempts: dict[str, Any]) -> str:
        listed = [{"attempt": number, **facts} for number, facts in enumerate(attempts)]
        return replicate_key({**RUN, "attempts": listed}, BASE)

    first, second = {"code": {"task.py": "aa"}}, {"code": {"task.py": "bb"}}
    assert key(first) != key(second)
    assert key(first) == key(first, first)
    assert key({}, {"overrides": ["train.for=9ep"]}) != key({}, {})
    assert key({}, {"overrides": ["log.level=debug"]}) == key({}, {})


def test_a_run_without_a_config_has_no_key() -> None:
    for lost in [{}, {"optim.lr": []}, {"optim.lr": [3]}, {"optim.lr": "x"}]:
        assert replicate_key(RUN, lost) == ""


def test_the_last_run_of_each_seed_counts() -> None:
    assert latest_per_seed([1, 2, 1, 3, None, None]) == [1, 2, 3, 5]


def test_a_mean_is_shown_with_half_its_interval() -> None:
    assert str(estimate_mean([0.5])) == "0.5"
    assert str(estimate_mean([0.5, 0.5])) == "0.5 ± 0"
    assert str(estimate_mean([0.91234, 0.92])) == "0.9162 ± 0.049"


def test_critical_values_equal_those_of_scipy() -> None:
    for freedom in [*range(1, 40), 99, 100, 199, 200, 201, 500, 10_000, 10**7]:
        assert t_critical_value(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-10)


def test_mean_and_interval_equal_those_of_scipy() -> None:
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
    for value in (0.4049, 0.9081, -0.9828, 0.1, 0.0):
        for count in (2, 3, 5, 7, 10):
            found = estimate_mean([value] * count)
            assert (found.mean, found.spread, found.low, found.high) == (value, 0, value, value)


def test_special_values_have_a_defined_mean() -> None:
    equal = estimate_mean([0.1] * 3)
    assert (equal.mean, equal.spread) == pytest.approx((0.1, 0.0))
    assert equal.low == equal.mean == equal.high
    one = estimate_mean([0.5])
    assert (one.mean, one.count) == (0.5, 1)
    assert all(map(math.isnan, (one.low, one.high, one.spread, one.half_width)))
    assert math.isnan(estimate_mean([]).mean)
    for bad in (math.nan, math.inf):
        found = estimate_mean([0.5, bad, 0.7])
        assert not math.isfinite(found.mean)
        assert math.isnan(found.high)
    assert math.isfinite(estimate_mean([1e308, -1e308, 1e308]).spread)
