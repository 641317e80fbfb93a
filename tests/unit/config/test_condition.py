"""Conditions on metrics: spelled, parsed, refused, judged."""

from __future__ import annotations

import math

import pytest

from epochal.config.condition import Condition, parse_condition


def test_conditions_are_parsed() -> None:
    for text, condition in (
        ("val/acc >= 0.95", Condition("val/acc", "+", 0.95)),
        ("+val/acc >= 0.95", Condition("val/acc", "+", 0.95)),
        (" -val/loss<=1e-3 ", Condition("val/loss", "-", 0.001)),
        ("val/top-5 >= 90", Condition("val/top-5", "+", 90.0)),
        ("val/score >= -2", Condition("val/score", "+", -2.0)),
        ("val/en/acc >= 1", Condition("val/en/acc", "+", 1.0)),
    ):
        assert parse_condition(text) == condition
        assert parse_condition(str(condition)) == condition, text
        assert parse_condition(condition) is condition, text


def test_what_is_no_condition_is_refused_with_an_example() -> None:
    for text in (
        "",
        "val/acc",
        "val/acc 0.9",
        "val/acc = 1",
        ">= 0.9",
        "val/acc >=",
    ):
        with pytest.raises(
            ValueError, match=r"expected a condition, got .*; write 'val/acc >= 0.95'"
        ):
            parse_condition(text)


def test_a_comparison_without_equality_is_refused_with_the_one_that_is_accepted() -> None:
    for text, meant in (("val/acc > 0.9", "val/acc >= 0.9"), ("-val/loss<1", "-val/loss<=1")):
        with pytest.raises(ValueError, match=f"; write '{meant}'"):
            parse_condition(text)


def test_a_condition_needs_a_finite_number() -> None:
    for number in ("nan", "inf", "high", "0,9"):
        with pytest.raises(ValueError, match="is not a number to reach"):
            parse_condition(f"val/acc >= {number}")


def test_a_sign_must_not_contradict_the_comparison() -> None:
    for text in ("-val/acc >= 0.9", "+val/loss <= 0.1"):
        with pytest.raises(ValueError, match="contradicts"):
            parse_condition(text)


def test_nan_meets_no_condition() -> None:
    assert parse_condition("a >= 1").holds(1.0)
    assert not parse_condition("a >= 1").holds(0.999)
    assert parse_condition("a <= 1").holds(1.0)
    assert not parse_condition("a >= 1").holds(math.nan)
    assert not parse_condition("a <= 1").holds(math.nan)
