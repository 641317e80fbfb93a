from __future__ import annotations

from dataclasses import replace

from epochal.check.values.report import Mistakes, sort_problems
from epochal.config.node import NOWHERE
from epochal.errors import Place, Problem


def test_problems_are_sorted_by_place_without_duplicates() -> None:
    late = Problem("c", "x", Place("a.yaml", 9, 1))
    early = Problem("a", "x", Place("a.yaml", 2, 5))
    other = Problem("b", "x", Place("b.yaml", 1, 1))
    nowhere = Problem("d", "x")
    assert sort_problems([other, late, early, late, nowhere]) == (nowhere, early, late, other)


def test_keys_below_an_unreadable_file_are_unknown() -> None:
    mistakes = Mistakes(frozenset({"model", "a.b"}))
    paths = ("model", "model.width", "a.b.c", "models", "a")
    assert [path for path in paths if mistakes.is_broken(path)] == ["model", "model.width", "a.b.c"]
    assert Mistakes(frozenset({""})).is_broken("anything")


def test_mistakes_know_the_keys_that_were_reported() -> None:
    mistakes = Mistakes(frozenset({"a"}), frozenset({"b.c"}))
    mistakes.report("monitor", "is wrong", None)
    paths = ("a", "b.c", "b", "a.x", "monitor", "mon")
    assert [path for path in paths if mistakes.is_known_bad(path)] == ["a", "b.c"]
    assert [path for path in paths if mistakes.has_any(path)] == ["b.c", "b", "monitor"]


def test_values_from_python_have_no_place() -> None:
    mistakes = Mistakes()
    mistakes.report("a", "wrong", NOWHERE)
    assert str(mistakes.problems[0]) == "a: wrong"


def test_the_text_of_a_report_is_its_problems_or_the_number_of_defaults(check_dict) -> None:
    good = check_dict()
    assert str(good) == f"no mistakes, {len(good.defaults)} defaults"
    bad = check_dict(seed="x", modle={})
    assert str(bad) == "\n\n".join(str(problem) for problem in bad.problems)
    assert "unknown section 'modle'" in str(bad)
    assert str(replace(good, defaults=good.defaults[:1])) == "no mistakes, 1 default"
