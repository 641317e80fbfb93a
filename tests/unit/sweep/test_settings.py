"""The section ``sweep`` of a config."""

from __future__ import annotations

from typing import Any

import pytest

from epochal.config.node import Node, from_plain
from epochal.errors import ConfigError
from epochal.sweep.pruning import Pruner
from epochal.sweep.settings import Objective, SweepSettings, read_settings
from epochal.sweep.space import NormalRange, ValueChoice, ValueRange

EXPANDED = {
    "monitor": "+val/acc",
    "model": {"width": 64, "dropout": 0.1},
    "optim": {"type": "adam", "lr": 0.001},
    "seed": 0,
}
SPACE = {"optim.lr": {"min": 1e-4, "max": 1e-1, "log": True}}


def _read(sweep: dict[str, Any], **changes: object) -> SweepSettings:
    expanded = {**EXPANDED, **changes}
    return read_settings(from_plain(sweep), from_plain(expanded))


def test_every_way_to_write_values_is_understood() -> None:
    cases: dict[str, tuple[object, object]] = {
        "list": ([1, 2], ValueChoice((1, 2))),
        "components": ([{"type": "sgd"}, "adam"], ValueChoice(({"type": "sgd"}, "adam"))),
        "fixed": (3, ValueChoice((3,))),
        "range": ({"min": 0.1, "max": 0.5}, ValueRange(0.1, 0.5)),
        "integers": ({"min": 1, "max": 5}, ValueRange(1, 5, is_integer=True)),
        "log": (SPACE["optim.lr"], ValueRange(1e-4, 1e-1, is_log=True)),
        "points": ({"min": 0.0, "max": 1.0, "points": 3}, ValueRange(0.0, 1.0, points=3)),
        "values": ({"values": ["a", "b"]}, ValueChoice(("a", "b"))),
        "value": ({"value": 7}, ValueChoice((7,))),
        "weights": (
            {"values": [1, 2], "probabilities": [0.9, 0.1]},
            ValueChoice((1, 2), (0.9, 0.1)),
        ),
        "uniform": ({"distribution": "uniform", "min": 0, "max": 1}, ValueRange(0, 1)),
        "q": (
            {"distribution": "q_uniform", "min": 0, "max": 1, "q": 0.5},
            ValueRange(0, 1, step=0.5),
        ),
        "log values": (
            {"distribution": "log_uniform_values", "min": 0.1, "max": 1.0},
            ValueRange(0.1, 1.0, is_log=True),
        ),
        "normal": ({"distribution": "normal", "mu": 1.0, "sigma": 2.0}, NormalRange(1.0, 2.0)),
    }
    found = _read({"space": {name: written for name, (written, _) in cases.items()}})
    for parameter in found.space.parameters:
        assert parameter.values == cases[parameter.key][1], parameter.key


def test_whole_numbers_mean_a_range_of_floats_where_the_config_has_a_float() -> None:
    found = _read(
        {"space": {"model.dropout": {"min": 0, "max": 1}, "model.width": {"min": 1, "max": 9}}}
    )
    assert [one.values for one in found.space.parameters] == [
        ValueRange(0.0, 1.0),
        ValueRange(1, 9, is_integer=True),
    ]


def test_defaults_follow_the_config() -> None:
    found = _read({"space": SPACE, "method": None})
    assert (found.method, found.num_trials, found.repeats) == ("tpe", 20, 1)
    assert found.objectives == (Objective("val/acc", "max"),)
    assert found.pruner is None
    grid = _read({"space": {"seed": [1, 2]}, "method": "grid"})
    assert grid.num_trials is None


def test_the_points_of_a_grid_are_counted() -> None:
    small = {"model.width": [1, 2, 3], "seed": [1, 2]}
    large = {"model.width": list(range(200)), "seed": list(range(200))}
    rows = (
        ({"space": small}, 6),
        ({"space": small, "trials": 4}, 4),
        ({"space": small, "trials": 40}, 6),
        ({"space": small, "constraints": ["model.width * seed <= 2"]}, 3),
        ({"space": large}, None),
        ({"space": large, "trials": 4}, 4),
        ({"space": small, "method": "random", "trials": 40}, 40),
    )
    for section, planned in rows:
        assert _read({"method": "grid"} | section).num_planned == planned, section


def test_a_sweep_file_of_wandb_is_understood() -> None:
    found = _read(
        {
            "program": "train.py",
            "method": "bayes",
            "metric": {"name": "val/loss", "goal": "minimize", "target": 0.1},
            "run_cap": 30,
            "early_terminate": {"type": "hyperband", "min_iter": 2, "eta": 4, "s": 2},
            "parameters": {
                "optim": {"parameters": {"lr": {"min": 0.1, "max": 0.2}}},
                "seed": {"values": [1, 2]},
            },
        }
    )
    assert found.method == "tpe"
    assert found.num_trials == 30
    assert found.objectives == (Objective("val/loss", "min"),)
    assert found.target == 0.1
    assert found.pruner == Pruner("hyperband", min_evaluations=2, factor=4, brackets=2)
    assert [one.key for one in found.space.parameters] == ["optim.lr", "seed"]
    assert "sweep.program is not used" in found.notes[0]


def test_conditions_put_parameters_after_those_they_read() -> None:
    found = _read(
        {
            "space": {
                "optim.momentum": {"min": 0.0, "max": 0.9, "when": {"optim.type": "sgd"}},
                "optim.type": ["sgd", "adam"],
                "model.width": {"values": [1, 2], "when": {"model": {"dropout": [0.1, 0.2]}}},
            }
        }
    )
    assert [one.key for one in found.space.parameters] == [
        *("optim.type", "model.width", "optim.momentum")
    ]
    assert found.space.fixed == {"model.dropout": 0.1}


def test_constraints_read_swept_and_fixed_values() -> None:
    texts = ["model.width * 2 <= 100", "optim.lr < 0.01", "val/acc >= 0.5"]
    found = _read({"space": SPACE, "constraints": texts})
    assert [str(one) for one in found.metric_constraints] == ["val/acc >= 0.5"]
    assert not found.is_allowed({"optim.lr": 0.001})  # the width of the config is 64
    assert found.is_allowed({"optim.lr": 0.001, "model.width": 50})


def test_repeats_have_a_largest_number() -> None:
    assert _read({"space": SPACE, "repeats": 1000}).repeats == 1000
    with pytest.raises(ConfigError, match="repeats: expected a whole number from 1 to 1000, got"):
        _read({"space": SPACE, "repeats": 1001})


def test_every_mistake_is_reported_at_once() -> None:
    sweep = {
        "methd": "tpe",
        "method": "teepee",
        "trials": 0,
        "repeats": "three",
        "objective": "val/other",
        "prune": {"type": "asha", "factr": 3},
        "constraints": ["model.widht < 3", "import os"],
        "space": {
            "optim.lr": {"min": 1e-1, "max": 1e-4},
            "a": {"min": 0, "max": 1, "log": True},
            "b": {"min": 1},
            "c": [],
            "d": {"min": 1, "max": 2, "stp": 1},
            "e": {"min": 1, "max": 2, "step": -1},
            "f": {"values": [1, 2], "probabilities": [1]},
            "g": {"distribution": "gauss", "min": 1, "max": 2},
            "h": {"min": "one", "max": 2},
            "i": {"values": [1], "when": {"model.widht": 64}},
            "j": {"values": [1], "when": {"model.width": 65}},
            "k": {"values": [1], "when": {"l": [3, 4]}},
            "l": [1, 2],
        },
    }
    with pytest.raises(ConfigError) as caught:
        _read(sweep)
    text = str(caught.value)
    for expected in (
        "sweep.methd: unknown key 'methd'\n  did you mean 'method'?",
        "sweep.method: unknown method 'teepee'",
        "sweep.trials: expected a whole number from 1, got 0",
        "sweep.repeats: expected a whole number from 1 to 1000, got 'three'",
        "sweep.objective: does not say which way is better: 'val/other'",
        "sweep.prune.factr: unknown key 'factr'\n  did you mean 'factor'?",
        "sweep.constraints: there is no key 'model.widht'\n  did you mean 'model.width'?",
        "sweep.constraints: expected a comparison, got 'import os'",
        "sweep.space.optim.lr: min must be below max, got 0.1 and 0.0001",
        "sweep.space.a.min: min must be above 0 for a logarithmic range",
        "sweep.space.b: 'max' is missing",
        "sweep.space.c: expected values, got an empty list",
        "sweep.space.d.stp: unknown key 'stp'\n  did you mean 'step'?",
        "sweep.space.e.step: must be above 0",
        "sweep.space.f.probabilities: expected 2 probabilities",
        "sweep.space.g.distribution: unknown distribution 'gauss'",
        "sweep.space.h.min: expected a number, got 'one'",
        "sweep.space.i.when: there is no key 'model.widht'\n  did you mean 'model.width'?",
        "sweep.space.j.when: never holds: model.width is 64\n"
        "  change the condition, or search model.width too",
        "sweep.space.k.when: never holds: l is 1, 2\n  change the condition",
    ):
        assert expected in text, expected


def test_what_cannot_work_together_is_refused() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "there is nothing to search"),
        ({"space": SPACE, "method": "grid"}, "a grid needs to know which values"),
        ({"space": SPACE, "prune": "asha", "objective": ["+a/b", "-c/d"]}, "several objectives"),
        ({"space": SPACE, "method": "gp", "objective": ["+a/b", "-c/d"]}, "takes one objective"),
        ({"space": SPACE, "method": "cma-es", "constraints": ["val/acc >= 1"]}, "no constraints"),
        ({"space": SPACE, "trials": 1, "run_cap": 2}, "means the same as 'trials'"),
        (
            {
                "space": {
                    "a": {"values": [1], "when": {"b": 1}},
                    "b": {"values": [1], "when": {"a": 1}},
                }
            },
            "depend on each other",
        ),
    ]
    for sweep, expected in cases:
        with pytest.raises(ConfigError, match=expected):
            _read(sweep)
    with pytest.raises(ConfigError, match="nothing says which trial is best"):
        _read({"space": SPACE}, monitor=None)
    with pytest.raises(ConfigError, match="the config has no search space"):
        read_settings(None, Node({}))


def test_keys_may_be_nested() -> None:
    space = {"optim": {"lr": [1, 2], "groups": {"head": {"min": 0.1, "max": 1.0}}}}
    found = _read({"space": {**space, "model.width": [3]}})
    assert [one.key for one in found.space.parameters] == [
        "optim.lr",
        "optim.groups.head",
        "model.width",
    ]
    with pytest.raises(ConfigError, match=r"sweep.space.optim.lr.mn: unknown key 'mn'"):
        _read({"space": {"optim.lr": {"mn": 1, "mx": 2}}})
