"""Tests of epochal.records.layout.coerce."""

from __future__ import annotations

import math

from epochal.records.layout.coerce import as_count, as_finite_numbers, as_float, as_mapping, as_text


def test_values_of_wrong_types_are_empty() -> None:
    for value in [None, [], "x", 1.5]:
        assert as_count(value) == 0
        assert as_mapping(value) == {}
        assert as_finite_numbers(value) == {}


def test_values_of_the_right_type_are_unchanged() -> None:
    assert (as_text("x"), as_count(3), as_mapping({"a": 1})) == ("x", 3, {"a": 1})
    assert (as_text(3), as_float(3), as_float(math.inf)) == ("", 3.0, math.inf)


def test_values_that_are_no_float_are_none() -> None:
    for value in [None, "3", True, math.nan, 10**400]:
        assert as_float(value) is None


def test_only_finite_numbers_of_a_mapping_are_returned() -> None:
    mixed = {"a": 1, "b": math.inf, "c": "x", "d": 10**400, "e": math.nan, "f": 0.5}
    assert as_finite_numbers(mixed) == {"a": 1.0, "f": 0.5}
