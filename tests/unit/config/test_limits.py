from __future__ import annotations

import pytest

from epochal.config.node import from_plain
from epochal.config.problems import MAX_NODES, measure, refuse, refuse_depth, refuse_size
from epochal.errors import ConfigError


def test_a_tree_is_measured_by_its_values_and_levels() -> None:
    assert measure(from_plain(3)) == (1, 1)
    assert measure(from_plain({"a": [1, 2], "b": {}})) == (5, 3)


def test_measuring_stops_when_it_is_enough() -> None:
    wide = from_plain(list(range(50)))
    node = from_plain({str(i): i for i in range(3)})
    for _ in range(40):
        node = from_plain({"a": 1}).__class__((node, node))
    count, _ = measure(node, enough=100)
    assert 100 < count < 1_000
    assert measure(wide, enough=10)[0] <= 12


def test_a_refusal_says_what_and_what_now() -> None:
    with pytest.raises(ConfigError, match=r"x\.yaml: is odd\n  do this"):
        refuse("x.yaml", "is odd", "do this")
    with pytest.raises(ConfigError, match=f"more than {MAX_NODES:,} values"):
        refuse_size("x.yaml")
    with pytest.raises(ConfigError, match="more than 64 levels deep"):
        refuse_depth("x.yaml")
