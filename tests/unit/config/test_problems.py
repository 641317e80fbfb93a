from __future__ import annotations

from epochal.config.problems import Findings, join
from epochal.errors import Place, Problem


def test_paths_are_joined_with_a_dot_where_both_have_something() -> None:
    assert join("a", "b") == "a.b"
    assert join("", "b") == "b"
    assert join("a", "") == "a"


def test_problems_of_an_included_file_get_the_key_they_are_loaded_at() -> None:
    inner, outer = Findings(), Findings()
    inner.report("lr", "is odd", Place("optim.yaml", 1, 1))
    inner.broken.add("lr")
    outer.include(inner, "optim")
    assert outer.problems == [Problem("optim.lr", "is odd", Place("optim.yaml", 1, 1))]
    assert outer.broken == {"optim.lr"}


def test_problems_of_whole_files_keep_the_name_of_the_file() -> None:
    inner, outer = Findings(), Findings()
    inner.report_file("optim.yaml", "is odd")
    outer.include(inner, "optim")
    assert outer.problems == [Problem("optim.yaml", "is odd")]
    assert outer.broken == {"optim"}


def test_files_included_twice_over_keep_their_name_too() -> None:
    inner, middle, outer = Findings(), Findings(), Findings()
    inner.report_file("deep.yaml", "is odd")
    middle.include(inner, "b")
    outer.include(middle, "a")
    assert outer.problems == [Problem("deep.yaml", "is odd")]
    assert outer.broken == {"a.b"}


def test_a_value_is_unknown_below_everything_that_is_broken() -> None:
    findings = Findings()
    assert not findings.is_unknown("optim.lr")
    findings.broken.add("optim")
    assert findings.is_unknown("optim.lr")
    assert findings.is_unknown("optim")
    assert not findings.is_unknown("optimizer")
    findings.broken.add("")
    assert findings.is_unknown("anything")


def test_a_copy_grows_on_its_own() -> None:
    first = Findings()
    first.report_file("a.yaml", "is torn")
    second = first.copy()
    second.report("b", "is wrong")
    assert [problem.key for problem in first.problems] == ["a.yaml"]
    third = Findings()
    third.include(second, "model")
    assert [problem.key for problem in third.problems] == ["a.yaml", "model.b"]
