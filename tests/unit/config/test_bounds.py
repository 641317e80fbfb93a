from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Annotated

import pytest

from epochal.config import Above, AtLeast, AtMost, Below
from epochal.config.bounds import broken_bound, guard, read_bound
from epochal.errors import ConfigError


def test_numbers_keep_or_break_a_bound() -> None:
    for bound, good, bad in (
        (AtLeast(1), (1, 2, 1.5), (0, 0.99, -3, float("nan"))),
        (Above(0), (1e-9, 3), (0, -1, float("nan"))),
        (AtMost(1), (1, 0, -5), (1.01, 2)),
        (Below(1), (0.99, 0), (1, 2)),
    ):
        assert [broken_bound(value, (bound,)) for value in good] == [None] * len(good)
        assert [broken_bound(value, (bound,)) for value in bad] == [bound] * len(bad)


def test_only_numbers_can_break_a_bound() -> None:
    for value in (None, "0", True, False, [0]):
        assert broken_bound(value, (AtLeast(5),)) is None


def test_bounds_are_read_from_text() -> None:
    for text, bound in (
        ("AtLeast(1)", AtLeast(1)),
        ("config.Above(-0.5)", Above(-0.5)),
        ("Below(limit=1)", Below(1)),
        ("AtLeast()", None),
        ("AtLeast('a')", None),
        ("AtLeast(size)", None),
        ("Other(1)", None),
        ("AtLeast", None),
    ):
        assert read_bound(ast.parse(text, mode="eval").body) == bound


@dataclass(frozen=True)
class Options:
    size: Annotated[int, AtLeast(1)] = 1
    rate: Annotated[float, AtLeast(0), Below(1)] | None = None
    name: str = ""


def test_options_within_their_bounds_pass() -> None:
    guard(Options(), "here")
    guard(Options(size=9, rate=0.0), "here")


def test_options_outside_their_bounds_are_refused() -> None:
    for options, message in (
        (Options(size=0), r"here\.size: must be at least 1, got 0\n  write a number that is at"),
        (Options(rate=1.0), r"here\.rate: must be below 1, got 1\.0"),
        (Options(rate=-1), r"here\.rate: must be at least 0, got -1"),
    ):
        with pytest.raises(ConfigError, match=message):
            guard(options, "here")
