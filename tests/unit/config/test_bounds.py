from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Annotated

import pytest

from epochal.config import Above, AtLeast, AtMost, Below
from epochal.config.bounds import Bound, broken_bound, guard, read_bound
from epochal.errors import ConfigError


@pytest.mark.parametrize(
    ("bound", "good", "bad"),
    [
        (AtLeast(1), (1, 2, 1.5), (0, 0.99, -3, float("nan"))),
        (Above(0), (1e-9, 3), (0, -1, float("nan"))),
        (AtMost(1), (1, 0, -5), (1.01, 2)),
        (Below(1), (0.99, 0), (1, 2)),
    ],
)
def test_numbers_keep_or_break_a_bound(
    bound: Bound, good: tuple[float, ...], bad: tuple[float, ...]
) -> None:
    assert [broken_bound(value, (bound,)) for value in good] == [None] * len(good)
    assert [broken_bound(value, (bound,)) for value in bad] == [bound] * len(bad)


@pytest.mark.parametrize("value", [None, "0", True, False, [0]])
def test_only_numbers_can_break_a_bound(value: object) -> None:
    assert broken_bound(value, (AtLeast(5),)) is None


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("AtLeast(1)", AtLeast(1)),
        ("config.Above(-0.5)", Above(-0.5)),
        ("Below(limit=1)", Below(1)),
        ("AtLeast()", None),
        ("AtLeast('a')", None),
        ("AtLeast(size)", None),
        ("Other(1)", None),
        ("AtLeast", None),
    ],
)
def test_bounds_are_read_from_text(text: str, bound: Bound | None) -> None:
    assert read_bound(ast.parse(text, mode="eval").body) == bound


@dataclass(frozen=True)
class Options:
    size: Annotated[int, AtLeast(1)] = 1
    rate: Annotated[float, AtLeast(0), Below(1)] | None = None
    name: str = ""


def test_options_within_their_bounds_pass() -> None:
    guard(Options(), "here")
    guard(Options(size=9, rate=0.0), "here")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Options(size=0), r"here\.size: must be at least 1, got 0\n  write a number that is at"),
        (Options(rate=1.0), r"here\.rate: must be below 1, got 1\.0"),
        (Options(rate=-1), r"here\.rate: must be at least 0, got -1"),
    ],
)
def test_options_outside_of_them_are_refused(options: Options, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        guard(options, "here")
