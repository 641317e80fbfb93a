"""Curves for charts: by step, epoch or time, in buckets that keep every spike."""

from __future__ import annotations

import base64
import itertools
import math
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from comparing import make_run
from unit.web.conftest import RUNS

if TYPE_CHECKING:
    from pathlib import Path

    from browsing import Browser

NEW = "20261116-000000-abcd"


def get_one(browser: Browser, run: str, **query):
    (found,) = browser.get(f"/api/runs/{run}/series", **query)["series"]
    return found


def test_short_curves_are_exact(browser: Browser) -> None:
    found = get_one(browser, RUNS[0], name="val/acc")
    assert found["x"] == [4, 9]
    assert found["min"] == found["max"] == found["mean"] == [0.5, 0.6]
    assert found["is_exact"] is True
    assert found["count"] == 2
    assert found["attempts"] == []


def test_several_metrics_and_runs_come_together(browser: Browser) -> None:
    names = ["val/acc", "train/loss", "unknown"]
    found = browser.get("/api/series", run=[RUNS[0], RUNS[2]], name=names)["series"]
    assert [(one["run"], one["name"]) for one in found] == [
        (run, name) for run in (RUNS[0], RUNS[2]) for name in names[:2]
    ]
    query = {"run": ["unknown"], "name": ["val/acc"]}
    assert browser.send("GET", "/api/series", query=query).status == 404


def test_the_curves_of_the_first_chart_come_with_the_names_of_compared_runs(
    browser: Browser, runs: Path
) -> None:
    points = {
        "train/loss": {0: 1.5},
        "val/l10": {0: 1.0},
        "val/l9": {0: 2.0},
        "val/probe/a": {0: 3},
    }
    make_run(runs / "p" / "t" / NEW, points=points, metrics={"val/a": 1.0})
    query = {"run": [NEW, RUNS[2]], "first_curves": "true"}
    found = browser.get("/api/compare/metrics", **query, points=100)
    assert {*points} <= {*found["metrics"]}
    assert "val/a" not in found["metrics"]  # it has a last value, but no curve
    (first,) = {one["name"] for one in found["series"]}
    whole = browser.get("/api/series", run=query["run"], name=first, points=100)
    assert found["series"] == whole["series"]
    assert browser.get("/api/compare/metrics", run=[NEW])["series"] == []
    (own,) = browser.get("/api/compare/metrics", run=[NEW], first_curves="true")["series"]
    assert own["name"] == "val/l9"


def test_packed_curves_are_the_same_numbers(browser: Browser, runs: Path) -> None:
    make_run(runs / "p" / "t" / NEW, points={"loss": {0: 1.5, 1: math.nan, 2: -math.inf, 9: 2.0}})
    plain = get_one(browser, NEW, name="loss")
    packed = get_one(browser, NEW, name="loss", packed="true")
    for name in ("x", "min", "max", "mean"):
        found = np.frombuffer(base64.b64decode(packed[name]), "<f8").tolist()
        assert [None if math.isnan(one) else one for one in found] == plain[name], name
    assert {**packed, **{name: plain[name] for name in ("x", "min", "max", "mean")}} == plain


def test_a_part_of_a_curve(browser: Browser) -> None:
    found = get_one(browser, RUNS[0], name="train/loss", **{"from": 3, "to": 5})
    assert found["x"] == [3, 4, 5]
    empty = get_one(browser, RUNS[0], name="train/loss", **{"from": 300})
    assert empty["x"] == []


def test_values_that_are_no_numbers_are_gaps(browser: Browser, runs: Path) -> None:
    make_run(runs / "p" / "t" / NEW, points={"loss": {0: 1.0, 1: math.nan, 2: math.inf, 3: 2.0}})
    assert get_one(browser, NEW, name="loss")["mean"] == [1.0, None, None, 2.0]


@given(values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300), points=st.integers(1, 40))
@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_no_spike_is_hidden(browser: Browser, runs: Path, values, points) -> None:
    import shutil

    folder = runs / "p" / "t" / NEW
    shutil.rmtree(folder, ignore_errors=True)
    make_run(folder, points={"loss": dict(enumerate(values))})
    found = get_one(browser, NEW, name="loss", points=points)
    assert len(found["x"]) <= points
    assert max(found["max"]) == max(values)
    assert min(found["min"]) == min(values)
    edges = [*found["x"], len(values)]
    for place, (start, end) in enumerate(itertools.pairwise(edges)):
        assert found["max"][place] == max(values[start:end])
        assert found["min"][place] == min(values[start:end])
    assert found["count"] == len(values)


def test_epochs_and_seconds_as_axes(browser: Browser, runs: Path) -> None:
    epochs = get_one(browser, RUNS[0], name="val/acc", x="epoch")
    assert np.allclose(epochs["x"], [4 / 9, 1.0])
    seconds = get_one(browser, RUNS[0], name="train/loss", x="time")
    assert seconds["x"][0] == 0.0
    assert seconds["x"] == sorted(seconds["x"])
    assert len(seconds["x"]) == 10
    half = get_one(browser, RUNS[0], name="train/loss", x="epoch", to=0.5)
    assert len(half["x"]) == 5


def test_sparklines_are_short(browser: Browser, runs: Path) -> None:
    points = {"val/acc": {step: float(step) for step in range(1000)}}
    make_run(runs / "p" / "t" / NEW, points=points)
    found = browser.get("/api/sparklines", run=[RUNS[0], NEW, "unknown"], name="val/acc")
    assert found.keys() == {RUNS[0], NEW}
    assert found[RUNS[0]] == [0.5, 0.6]
    assert len(found[NEW]) == 32


def test_a_run_without_points_has_no_curves(browser: Browser, runs: Path) -> None:
    make_run(runs / "p" / "t" / NEW)
    for axis in ("step", "epoch", "time"):
        path = f"/api/runs/{NEW}/series"
        assert browser.get(path, name="val/acc", x=axis) == {"series": []}, axis
