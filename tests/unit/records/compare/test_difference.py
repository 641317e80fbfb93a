"""Tests of epochal.records.compare.difference."""

from __future__ import annotations

import math

from epochal.records.compare.difference import Difference, RunValue, compare_tables, is_equal_value


def table(**values: object) -> dict[str, RunValue]:
    return {key: RunValue(value) for key, value in values.items()}


def test_equal_values_are_equal() -> None:
    for one, other in [
        (1, 1.0),
        (math.nan, math.nan),
        ([1, {"a": None}], (1, {"a": None})),
        ("x", "x"),
        ([], []),
    ]:
        assert is_equal_value(one, other)


def test_different_values_are_not_equal() -> None:
    for one, other in [
        (1, True),
        (0, False),
        (1, "1"),
        (None, 0),
        ([1], [1, 2]),
        ({"a": 1}, {"b": 1}),
        ([], {}),
    ]:
        assert not is_equal_value(one, other)


def test_differences_are_in_the_order_of_the_runs() -> None:
    facts = compare_tables([table(b=1, a=1, same=0), table(a=2, b=2, same=0, new=3)])
    assert [one.key for one in facts.differences] == ["b", "a", "new"]
    assert facts.num_same == 1


def test_a_missing_value_is_none() -> None:
    [found] = compare_tables([table(a=1, b=1), table(a=1)]).differences
    assert found == Difference("b", (RunValue(1), None))


def test_null_is_a_value() -> None:
    assert len(compare_tables([table(a=None, b=1), table(b=1)]).differences) == 1


def test_one_of_three_runs_may_differ() -> None:
    tables = [table(a=1), table(a=1), table(a=2)]
    assert [one.key for one in compare_tables(tables).differences] == ["a"]


def test_a_run_without_a_table_is_not_compared() -> None:
    facts = compare_tables([table(a=1), None, table(a=2)])
    assert facts.unknown == (1,)
    assert facts.differences[0].sides[1] is None
    alone = compare_tables([table(a=1), None])
    assert (alone.differences, alone.num_same, alone.unknown) == ((), 0, (1,))


def test_a_run_with_an_empty_table_differs() -> None:
    facts = compare_tables([table(a=1), {}])
    assert facts.differences == (Difference("a", (RunValue(1), None)),)
    assert facts.unknown == ()


def test_a_default_of_one_run_is_minor() -> None:
    preset = RunValue(0.9, "default of SGD", is_default=True)
    assert Difference("momentum", (preset, None)).is_minor
    assert not Difference("momentum", (preset, RunValue(0.5, is_default=True))).is_minor
    assert not Difference("momentum", (RunValue(0.9, "a.yaml:3"), None)).is_minor
