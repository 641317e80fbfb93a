from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from epochal.check.values.report import CheckReport, Mistakes, sort_problems
from epochal.config.node import NOWHERE, from_plain
from epochal.errors import Place, Problem
from epochal.registry import Project


def test_problems_are_sorted_by_place_without_duplicates() -> None:
    late = Problem("c", "x", Place("a.yaml", 9, 1))
    early = Problem("a", "x", Place("a.yaml", 2, 5))
    other = Problem("b", "x", Place("b.yaml", 1, 1))
    nowhere = Problem("d", "x")
    assert sort_problems([other, late, early, late, nowhere]) == (nowhere, early, late, other)


def test_keys_below_an_unreadable_file_are_unknown() -> None:
    mistakes = Mistakes(frozenset({"model", "a.b"}))
    assert mistakes.is_broken("model")
    assert mistakes.is_broken("model.width")
    assert mistakes.is_broken("a.b.c")
    assert not mistakes.is_broken("models")
    assert not mistakes.is_broken("a")
    assert Mistakes(frozenset({""})).is_broken("anything")


def test_values_that_were_reported_are_known_to_be_bad() -> None:
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


def test_the_text_of_a_report_is_its_problems_or_the_number_of_defaults(check_dict) -> None:
    good = check_dict()
    assert str(good) == f"no mistakes, {len(good.defaults)} defaults"
    bad = check_dict(seed="x", modle={})
    assert str(bad) == "\n\n".join(str(problem) for problem in bad.problems)
    assert "unknown section 'modle'" in str(bad)
    assert str(replace(good, defaults=good.defaults[:1])) == "no mistakes, 1 default"


def test_mistakes_below_a_key_are_known() -> None:
    mistakes = Mistakes(reported=frozenset({"train.for"}))
    mistakes.report("monitor", "is wrong", None)
    assert [mistakes.has_any(key) for key in ("train", "train.for", "monitor", "mon", "tr")] == [
        True,
        True,
        True,
        False,
        False,
    ]
