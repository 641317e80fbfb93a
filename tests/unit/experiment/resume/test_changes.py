"""Tests of what may change in the middle of a run, and what may not."""

from __future__ import annotations

import math
from typing import Any

import pytest

from epochal.errors import ConfigError
from epochal.experiment.resume.changes import (
    changes_to_overrides,
    find_config_changes,
    refuse_changes,
)

CONFIG: dict[str, Any] = {
    "seed": 0,
    "optim": {"type": "SGD", "lr": 0.1},
    "train": {"for": "2ep"},
    "data": {"train": {"type": "Rows", "batch_size": 4, "workers": 0}},
    "hooks": [{"type": "shop.Mine"}],
}


def changed(**sections: Any) -> dict[str, Any]:
    return {**CONFIG, **sections}


def test_equal_configs_have_no_changes() -> None:
    assert find_config_changes(CONFIG, changed()) == []
    assert find_config_changes({"a": math.nan}, {"a": math.nan}) == []


@pytest.mark.parametrize(
    "section",
    [
        {"train": {"for": "3ep"}},
        {"train": {"for": "2ep", "max_time": "1h"}},
        {"log": {"level": "debug"}},
        {"record": {"log_dir": "elsewhere"}},
        {"checkpoint": {"every": "1ep"}},
        {"tag": "other"},
        {"init_from": None},
        {"data": {"train": {"type": "Rows", "batch_size": 4, "workers": 3}}},
        {"hooks": [{"type": "shop.Mine"}, {"type": "console", "every": "1st"}]},
    ],
)
def test_what_people_see_and_how_long_it_takes_may_change(section: dict[str, Any]) -> None:
    changes = find_config_changes(CONFIG, changed(**section))
    assert changes
    assert all(change.may_change for change in changes)
    refuse_changes("run", changes)


@pytest.mark.parametrize(
    ("section", "line"),
    [
        ({"seed": 1}, "seed: 0 -> 1"),
        ({"seed": False}, "seed: 0 -> False"),
        ({"optim": {"type": "SGD", "lr": 0.2}}, "optim.lr: 0.1 -> 0.2"),
        ({"optim": {"type": "SGD"}}, "optim.lr: 0.1 -> (nothing)"),
        ({"data": {"train": {"type": "Rows", "batch_size": 8, "workers": 0}}}, "data.train.batch"),
        ({"hooks": []}, "hooks: [{'type': 'shop.Mine'}] -> []"),
    ],
)
def test_what_is_computed_may_not_change(section: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        refuse_changes("runs/x", find_config_changes(CONFIG, changed(**section)))
    assert str(caught.value).startswith("runs/x: cannot be resumed as the same run")
    assert f"\n    {line}" in str(caught.value)
    assert str(caught.value).endswith("or resume with them: --allow-changed")


def test_long_lists_and_values_are_cut_short() -> None:
    many = {f"key{index}": "x" * 100 for index in range(20)}
    with pytest.raises(ConfigError) as caught:
        refuse_changes("run", find_config_changes({}, many))
    assert "and 8 more" in str(caught.value)
    assert max(map(len, str(caught.value).splitlines())) < 120


def test_changes_are_overrides_which_make_the_new_config_of_the_old_one() -> None:
    new = changed(train={"for": "3ep"}, optim={"type": "SGD"}, init_from="w", record={"exact": 1})
    overrides = changes_to_overrides(find_config_changes(CONFIG, new))
    assert overrides == ('optim.lr="$delete"', 'train.for="3ep"')
