"""Tests of resolving names."""

from __future__ import annotations

import sqlite3

import pytest

from epochal.errors import ConfigError
from epochal.records.index.index_database import create_tables
from epochal.records.query.grammar import parse_names
from epochal.records.query.resolve_names import ConfigKey, Fact, Measure, NameResolver, Target
from epochal.records.query.syntax import QueryText
from indexed import fetch


def resolve(connection: sqlite3.Connection, text: str) -> list[Target]:
    query = QueryText(text, "--columns")
    names = NameResolver(fetch(connection))
    return [one for name in parse_names(query) for one in names.expand(name, query)]


def test_names_are_facts_metrics_or_keys(connection: sqlite3.Connection) -> None:
    found = resolve(connection, "status, steps, age, val/acc, min(val/acc), optim.lr, speed")
    assert found == [
        Fact("status", "status"),
        Fact("steps", "step"),
        Fact("age", "age"),
        Measure("val/acc", "val/acc", "last"),
        Measure("min(val/acc)", "val/acc", "min"),
        ConfigKey("optim.lr", "optim.lr"),
        Measure("speed", "speed", "last"),
    ]


def test_elements_of_lists_may_have_brackets(connection: sqlite3.Connection) -> None:
    assert resolve(connection, "model.widths[1]") == [
        ConfigKey("model.widths[1]", "model.widths.1")
    ]


def test_stars_match_any_part(connection: sqlite3.Connection) -> None:
    found = resolve(connection, "optim.*, val/*")
    assert [one.shown for one in found] == [
        "optim.fused",
        "optim.lr",
        "optim.type",
        "val/acc",
        "val/loss",
    ]
    with pytest.raises(ConfigError, match="no name matches 'sgd"):
        resolve(connection, "sgd.*")


UNKNOWN = [
    ("optim.lrr", "did you mean 'optim.lr'?"),
    ("lr", "did you mean 'optim.lr'?"),
    ("optim", "it is a section: name one of optim.fused, optim.lr, optim.type"),
    ("val/ac", "did you mean 'val/acc'?"),
    ("acc", "did you mean 'val/acc'?"),
    ("test/f1", "known: speed, val/acc, val/loss"),
    ("max(optim.lr)", "it is a value of the config: write optim.lr"),
    ("statsu", "did you mean 'status'?"),
    ("stamp", "unknown name 'stamp'"),
    ("max(val/accc)", "did you mean 'val/acc'?"),
    ("max(optim.lr)", "no run has the metric 'optim.lr'"),
]


def test_unknown_names_are_refused_with_a_suggestion(connection: sqlite3.Connection) -> None:
    for name, hint in UNKNOWN:
        with pytest.raises(ConfigError) as caught:
            resolve(connection, name)
        assert hint in str(caught.value), name


def test_without_runs_all_names_are_accepted() -> None:
    connection = sqlite3.connect(":memory:")
    create_tables(connection)
    assert resolve(connection, "optim.lr, val/acc, max(x)") == [
        ConfigKey("optim.lr", "optim.lr"),
        Measure("val/acc", "val/acc", "last"),
        Measure("max(x)", "x", "max"),
    ]
    assert resolve(connection, "optim.*") == []
