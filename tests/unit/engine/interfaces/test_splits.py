"""Tests of the names of splits."""

from __future__ import annotations

import pytest

from epochal.engine.interfaces.splits import SPLITS, split_name
from epochal.errors import ConfigError


@pytest.mark.parametrize(
    ("written", "meant"),
    [("dev", "val"), ("valid", "val"), ("validation", "val"), ("eval", "val"), ("infer", "predict"),
     ("inference", "predict"), ("training", "train")],
)  # fmt: skip
def test_other_names_are_understood(written: str, meant: str) -> None:
    assert split_name(written) == meant


@pytest.mark.parametrize("split", SPLITS)
def test_canonical_names_stay(split: str) -> None:
    assert split_name(split) == split


def test_an_unknown_name_suggests_the_closest_one() -> None:
    with pytest.raises(ConfigError, match=r"unknown split 'tests'\n  did you mean 'test'\?"):
        split_name("tests")
