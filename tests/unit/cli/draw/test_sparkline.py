"""Tests of epochal.cli.draw.chart."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from epochal.cli.draw.chart import format_sparkline


def test_each_value_is_a_bar() -> None:
    for values, text in [
        ([0, 1, 2, 3, 4, 5, 6, 7], "▁▂▃▄▅▆▇█"),
        ([3, 3, 3], "▁▁▁"),
        ([1, math.nan, 2, math.inf], "▁!█!"),
        ([math.nan], "!"),
        ([5], "▁"),
        ([], ""),
    ]:
        assert format_sparkline(range(len(values)), values, width=20, is_plain=False) == text, (
            values
        )


def test_many_values_are_averaged() -> None:
    assert format_sparkline(range(1000), range(1000), width=8, is_plain=False) == "▁▂▃▄▅▆▇█"


def test_steps_without_a_value_leave_a_gap() -> None:
    assert format_sparkline([0, 10, 11], [1, 2, 3], width=3, is_plain=False) == "▁ █"


def test_few_values_at_uneven_steps_leave_no_gap() -> None:
    assert format_sparkline([10, 20, 25], [1, 2, 3], width=24, is_plain=False) == "▁▅█"


def test_plain_sparklines_are_ascii() -> None:
    assert format_sparkline(range(8), range(8), width=8, is_plain=True) == "_.-~=+*#"


@given(st.lists(st.floats(), min_size=1, max_size=40), st.integers(1, 30))
def test_any_values_fit_the_width(values: list[float], width: int) -> None:
    text = format_sparkline(range(len(values)), values, width=width, is_plain=False)
    assert len(text) == min(width, len(values))
