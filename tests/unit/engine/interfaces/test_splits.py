"""Tests of the names of splits."""

from __future__ import annotations

import pytest

from epochal.engine.interfaces.splits import SPLITS, split_name
from epochal.errors import ConfigError


def test_aliases_give_the_canonical_name() -> None:
    aliases = {
        **dict.fromkeys(("dev", "valid", "validation", "eval"), "val"),
        **dict.fromkeys(("infer", "inference"), "predict"),
        "training": "train",
        **{split: split for split in SPLITS},
    }
    assert {name: split_name(name) for name in aliases} == aliases


def test_an_unknown_name_suggests_the_closest_one() -> None:
    with pytest.raises(ConfigError, match=r"unknown split 'tests'\n  did you mean 'test'\?"):
        split_name("tests")
