"""Tests of the choices that belong to one run."""

from __future__ import annotations

import pytest

from epochal.errors import ConfigError
from epochal.experiment.config.choices import Choices, to_overrides


def test_no_choice_changes_nothing() -> None:
    assert to_overrides({}, ["a=1"]) == ["a=1"]


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        ({"fast": True}, ["train.limit_batches=3", 'train.for="1ep"']),
        ({"epochs": 7}, ['train.for="7ep"']),
        ({"fast": True, "epochs": 2}, ["train.limit_batches=3", 'train.for="2ep"']),
        ({"name": 'odd "tag"'}, ['tag="odd \\"tag\\""']),
        ({"desc": "why: a\nb"}, ['desc="why: a\\nb"']),
        ({"debug": True}, ['log.level="debug"']),
        ({"debug": False, "fast": False, "epochs": None}, []),
    ],
)
def test_choices_become_overrides(choices: Choices, expected: list[str]) -> None:
    assert to_overrides(choices, []) == expected


def test_what_was_typed_wins_over_what_a_flag_implies() -> None:
    assert to_overrides({"fast": True}, ["train.limit_batches=9"]) == [
        'train.for="1ep"',
        "train.limit_batches=9",
    ]
    assert to_overrides({"debug": True}, ["log.level=warning"]) == ["log.level=warning"]


@pytest.mark.parametrize(
    ("choices", "typed", "option"),
    [
        ({"epochs": 1}, "train.for=2ep", "--epochs"),
        ({"name": "a"}, "tag=b", "--name"),
        ({"desc": "a"}, "desc=b", "--desc"),
    ],
)
def test_the_same_key_in_two_ways_is_refused(choices: Choices, typed: str, option: str) -> None:
    with pytest.raises(ConfigError, match=f"set twice: by {option}"):
        to_overrides(choices, [typed])
