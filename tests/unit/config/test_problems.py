from __future__ import annotations

from epochal.config.node import Node, from_plain
from epochal.config.problems import Findings, join, measure
from epochal.errors import Place, Problem


def test_paths_are_joined_with_a_dot_where_both_have_something() -> None:
    assert join("a", "b") == "a.b"
    assert join("", "b") == "b"
    assert join("a", "") == "a"


def test_problems_of_an_included_file_get_the_key_they_are_loaded_at() -> None:
    inner, middle, outer = Findings(), Findings(), Findings()
    inner.report("lr", "is odd", Place("optim.yaml", 1, 1))
    inner.broken.add("lr")
    middle.include(inner, "optim")
    middle.report_file("deep.yaml", "is odd")  # a file keeps its name
    outer.include(middle, "a")
    assert outer.problems == [
        Problem("a.optim.lr", "is odd", Place("optim.yaml", 1, 1)),
        Problem("deep.yaml", "is odd"),
    ]
    assert outer.broken == {"a.optim.lr", "a"}
    last = Findings()
    last.include(outer, "b")
    assert last.problems[1] == Problem("deep.yaml", "is odd")


def test_a_value_is_unknown_below_everything_that_is_broken() -> None:
    findings = Findings()
    assert not findings.is_unknown("optim.lr")
    findings.broken.add("optim")
    assert findings.is_unknown("optim.lr")
    assert findings.is_unknown("optim")
    assert not findings.is_unknown("optimizer")
    findings.broken.add("")
    assert findings.is_unknown("anything")


def test_a_copy_is_independent() -> None:
    first = Findings()
    first.report_file("a.yaml", "is torn")
    second = first.copy()
    second.report("b", "is wrong")
    assert [problem.key for problem in first.problems] == ["a.yaml"]
    third = Findings()
    third.include(second, "model")
    assert [problem.key for problem in third.problems] == ["a.yaml", "model.b"]


def test_a_tree_is_measured_by_its_values_and_levels() -> None:
    assert measure(from_plain(3)) == (1, 1)
    assert measure(from_plain({"a": [1, 2], "b": {}})) == (5, 3)


def test_measuring_a_tree_of_shared_nodes_stops_early() -> None:
    node = from_plain({"a": 1})
    for _ in range(40):
        node = Node((node, node))
    count, _ = measure(node, enough=100)
    assert 100 < count < 1_000
