from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from epochal.check.values.report import CheckReport, Mistakes, sort_problems
from epochal.config.node import NOWHERE, from_plain
from epochal.errors import Place, Problem
from epochal.registry import Project


def test_problems_come_by_file_line_and_column_without_repetition() -> None:
    late = Problem("c", "x", Place("a.yaml", 9, 1))
    early = Problem("a", "x", Place("a.yaml", 2, 5))
    other = Problem("b", "x", Place("b.yaml", 1, 1))
    nowhere = Problem("d", "x")
    assert sort_problems([other, late, early, late, nowhere]) == (nowhere, early, late, other)


def test_what_a_broken_file_may_hold_is_not_missed() -> None:
    mistakes = Mistakes(frozenset({"model", "a.b"}))
    assert mistakes.is_broken("model")
    assert mistakes.is_broken("model.width")
    assert mistakes.is_broken("a.b.c")
    assert not mistakes.is_broken("models")
    assert not mistakes.is_broken("a")
    assert Mistakes(frozenset({""})).is_broken("anything")


def test_a_value_that_was_reported_is_known_to_be_bad() -> None:
    mistakes = Mistakes(frozenset({"a"}), frozenset({"b.c"}))
    assert [mistakes.is_known_bad(path) for path in ("a", "b.c", "b", "a.x")] == [
        True,
        True,
        False,
        False,
    ]


def test_values_from_python_have_no_place() -> None:
    mistakes = Mistakes()
    mistakes.report("a", "wrong", NOWHERE)
    assert str(mistakes.problems[0]) == "a: wrong"


def test_a_report_without_problems_is_ok() -> None:
    assert CheckReport((), from_plain({}), (), Project(Path())).ok
    assert not CheckReport((Problem("a", "b"),), from_plain({}), (), Project(Path())).ok


def test_a_report_reads_as_its_problems_or_as_none(check_dict) -> None:
    good = check_dict()
    assert str(good) == f"no mistakes, {len(good.defaults)} defaults"
    bad = check_dict(seed="x", modle={})
    assert str(bad) == "\n\n".join(str(problem) for problem in bad.problems)
    assert "unknown section 'modle'" in str(bad)
    assert str(replace(good, defaults=good.defaults[:1])) == "no mistakes, 1 default"


def test_mistakes_know_whether_anything_below_a_key_is_wrong() -> None:
    mistakes = Mistakes(reported=frozenset({"train.for"}))
    mistakes.report("monitor", "is wrong", None)
    assert [mistakes.has_any(key) for key in ("train", "train.for", "monitor", "mon", "tr")] == [
        True,
        True,
        True,
        False,
        False,
    ]
