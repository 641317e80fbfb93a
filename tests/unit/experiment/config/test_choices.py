"""Tests of the choices that belong to one run."""

from __future__ import annotations

from typing import Any

import pytest

from epochal.errors import ConfigError
from epochal.experiment.config.choices import to_overrides


def test_choices_become_overrides() -> None:
    table: list[tuple[Any, list[str]]] = [
        ({"fast": True}, ["train.limit_batches=3", 'train.for="1ep"']),
        ({"epochs": 7}, ['train.for="7ep"']),
        ({"fast": True, "epochs": 2}, ["train.limit_batches=3", 'train.for="2ep"']),
        ({"name": 'odd "tag"'}, ['tag="odd \\"tag\\""']),
        ({"desc": "why: a\nb"}, ['desc="why: a\\nb"']),
        ({"debug": True}, ['log.level="debug"']),
        ({"debug": False, "fast": False, "epochs": None}, []),
    ]
    for choices, expected in table:
        assert to_overrides(choices, []) == expected
        assert to_overrides(choices, ["a=1"]) == [*expected, "a=1"]


def test_typed_overrides_win_over_those_that_a_flag_implies() -> None:
    assert to_overrides({"fast": True}, ["train.limit_batches=9"]) == [
        'train.for="1ep"',
        "train.limit_batches=9",
    ]
    assert to_overrides({"debug": True}, ["log.level=warning"]) == ["log.level=warning"]


def test_the_last_of_several_overrides_of_a_key_remains_and_that_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert to_overrides({}, ["a=1", "b=1", "a=2", "c=1", "a=3"]) == ["b=1", "c=1", "a=3"]
    assert caplog.messages == ["a is set 3 times; the last one counts: a=3"]


def test_setting_a_key_twice_is_refused() -> None:
    table: dict[str, Any] = {
        "train.for=2ep": {"epochs": 1},
        "tag=b": {"name": "a"},
        "desc=b": {"desc": "a"},
    }
    for typed, choices in table.items():
        (option,) = choices
        with pytest.raises(ConfigError, match=f"set twice: by --{option}"):
            to_overrides(choices, [typed])
