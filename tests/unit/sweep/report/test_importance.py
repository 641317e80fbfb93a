"""The share of variance that each parameter explains."""

from __future__ import annotations

import math
import random

from epochal.sweep.report.importance import measure_importance


def test_the_parameter_that_decides_explains_most() -> None:
    generator = random.Random(0)
    trials = []
    for _ in range(200):
        values = {"lr": generator.uniform(-3, 3), "width": generator.random(), "kind": None}
        values["kind"] = generator.choice("ab")
        noise = generator.gauss(0, 0.3)
        trials.append((values, values["lr"] ** 2 + 3 * (values["kind"] == "b") + noise))
    found = measure_importance(["width", "kind", "lr"], trials)
    assert list(found) == ["lr", "kind", "width"]
    assert found["lr"] > 0.4
    assert 0.05 < found["kind"] < 0.4
    assert found["width"] < 0.03


def test_a_few_terrible_trials_do_not_decide() -> None:
    trials = [({"x": x / 50, "y": (x * 7) % 5}, x / 50) for x in range(50)]
    trials[0] = ({"x": 0.0, "y": 4}, 1e9)
    found = measure_importance(["x", "y"], trials)
    assert found["x"] > 0.7
    assert found["y"] < 0.1


def test_a_key_that_is_not_set_is_a_value_of_its_own() -> None:
    trials = [({"x": n / 20} if n % 2 else {}, float(n % 2)) for n in range(20)]
    assert measure_importance(["x"], trials)["x"] > 0.9


def test_nothing_is_explained_without_variance_or_with_few_trials() -> None:
    assert measure_importance(["x"], [({"x": 1}, 1.0)] * 3) == {}
    assert measure_importance(["x"], [({"x": n}, 1.0) for n in range(9)]) == {"x": 0.0}
    assert measure_importance(["x"], [({"x": 1}, float(n)) for n in range(9)]) == {"x": 0.0}
    assert measure_importance(["x"], [({"x": n}, math.nan) for n in range(9)]) == {}
