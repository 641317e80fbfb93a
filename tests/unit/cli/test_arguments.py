"""Tests of arguments and options that several verbs share."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from epochal.cli.arguments import print_json, split_files_and_overrides, split_single_file
from epochal.errors import ConfigError


def test_files_and_overrides_are_separated_in_any_order() -> None:
    files, overrides = split_files_and_overrides(
        ["a.yaml", "optim.lr=1e-3", "b.toml", "hooks.0.patience=2"]
    )
    assert files == [Path("a.yaml"), Path("b.toml")]
    assert overrides == ["optim.lr=1e-3", "hooks.0.patience=2"]


def test_file_with_an_equals_sign_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lr=3.yaml").write_text("tag: odd\n")
    assert split_files_and_overrides(["lr=3.yaml"]) == ([Path("lr=3.yaml")], [])


def test_path_with_an_equals_sign_in_a_folder_is_a_file() -> None:
    assert split_files_and_overrides(["runs/lr=3/config.yaml"]) == (
        [Path("runs/lr=3/config.yaml")],
        [],
    )


def test_value_may_be_longer_than_a_file_name() -> None:
    word = f"desc={'long ' * 100}"
    assert split_files_and_overrides(["a.yaml", word]) == ([Path("a.yaml")], [word])


def test_words_without_a_file_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"no config file among 'a=1'\n  name a file first"):
        split_files_and_overrides(["a=1"])


def test_json_is_valid_for_numbers_that_json_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": math.nan, "b": [math.inf, -math.inf], "p": Path("x")})

    def refuse(name: str) -> None:
        raise AssertionError(name)

    shown = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert shown == {"a": "$nan", "b": ["$inf", "-$inf"], "p": "x"}


def test_verbs_about_one_config_take_one_file() -> None:
    assert split_single_file(["a.yaml", "seed=1"], "profile") == (Path("a.yaml"), ["seed=1"])
    with pytest.raises(
        ConfigError, match=r"(?s)profile takes one config.*write `epochal profile a.yaml`"
    ):
        split_single_file(["a.yaml", "b.yaml"], "profile")
