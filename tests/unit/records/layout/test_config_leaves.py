"""Tests of epochal.records.layout.coerce."""

from __future__ import annotations

from typing import Any

from epochal.config import from_plain
from epochal.records.layout.coerce import iter_leaves

NESTED = {"a": {"b": [1, {"c": 2}], "d": []}, "e": {}, "f": None}


def test_leaves_have_dotted_paths() -> None:
    expected = {"a.b.0": 1, "a.b.1.c": 2, "a.d": [], "e": {}, "f": None}
    assert dict(iter_leaves(NESTED)) == expected
    assert dict(iter_leaves({})) == {}


def test_paths_equal_those_of_a_config_tree() -> None:
    tree = from_plain(NESTED)
    assert [path for path, _ in iter_leaves(NESTED)] == [path for path, _ in tree.iter_leaves()]


def test_very_deep_values_are_one_leaf() -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    [(path, value)] = iter_leaves({"a": deep})
    assert path == "a" + ".0" * 99
    assert isinstance(value, list)
