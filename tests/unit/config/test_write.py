from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from epochal.config import Config, dump, from_plain, load
from epochal.config.alias import ALIASES

Write = Callable[..., Path]

FORMATS = ("yaml", "toml", "json")
RESERVED = {"$BASE", "variants", "sweep", "env", *ALIASES}


def reload(text: str, format: str, folder: Path) -> Config:
    path = folder / f"config.{format}"
    path.write_bytes(text.encode())
    return load(path)


keys = st.text(max_size=8).filter(lambda key: key not in RESERVED)
special = st.sampled_from(
    ["$null", "$$inf", "-$inf", "$delete", "${a}", "$${a}", "${env:HOME}", "1", "1e5", "no", "~",
     "", "0x1F", "1_000", "null", "true", ".inf", "nan", "- a", "a: b", "# x", "x ",
     " x", "a\nb", "\t",
     "'", '"', "\\", "---", "...", "=", "<<", "@x", "%", "\x85", "\u2028", "\ufeff", "\x7f", "\x00",
     "2020-01-01", "1:30", "-", "?", "-1", "+1", "*a", "&a", "!a", "|", ">", "[", "{", "y", "-- x"]
)  # fmt: skip
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=12)
    | special
)
trees = st.dictionaries(
    keys,
    st.recursive(
        scalars,
        lambda children: (
            st.lists(children, max_size=4)
            | st.dictionaries(
                keys | special.filter(lambda k: k not in RESERVED), children, max_size=4
            )
        ),
        max_leaves=15,
    ),
    max_size=4,
)


@pytest.mark.parametrize("format", FORMATS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(tree=trees)
def test_what_is_written_is_read_back_unchanged(
    format: str, tmp_path: Path, tree: dict[str, Any]
) -> None:
    text = dump(tree, format) if tree else "{}"
    if not tree:
        return
    config = reload(text, format, tmp_path)
    assert not config.problems, text
    again = config.root.to_plain()
    assert again == tree
    assert ordered(again) == ordered(tree)


def ordered(value: Any) -> str:
    """A text in which 1, 1.0 and True differ and the order of keys does not matter."""
    if isinstance(value, dict):
        return str(sorted((key, ordered(child)) for key, child in value.items()))
    return str([ordered(child) for child in value]) if isinstance(value, list) else repr(value)


@pytest.mark.parametrize("format", FORMATS)
def test_a_written_node_is_read_back_too(format: str, tmp_path: Path) -> None:
    tree = {"a": [1, {"b": None}], "c": -math.inf, "d": "${x}", "e": {}, "f": []}
    assert reload(dump(from_plain(tree), format), format, tmp_path).root.to_plain() == tree


@pytest.mark.parametrize("format", FORMATS)
def test_not_a_number_is_read_back(format: str, tmp_path: Path) -> None:
    again = reload(dump({"a": math.nan}, format), format, tmp_path).root.to_plain()
    assert math.isnan(again["a"])


@pytest.mark.parametrize("format", FORMATS)
def test_values_of_the_environment_are_not_written(
    format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EPOCHAL_TOKEN", "secret")
    source = {"env": ["EPOCHAL_TOKEN"], "a": "${env:EPOCHAL_TOKEN}", "b": ["x-${a}"]}
    config = load(source)
    assert config.root.to_plain()["b"] == ["x-secret"]
    text = dump(config.root, format)
    assert "secret" not in text
    assert "x-${env:EPOCHAL_TOKEN}" in text
    assert reload(text, format, tmp_path).root.to_plain() == config.root.to_plain()


def test_other_references_are_written_filled_in() -> None:
    assert dump(load({"a": 1, "b": "${a}"}).root, "yaml") == "a: 1\nb: 1\n"


def test_yaml_is_the_default() -> None:
    assert dump({"a": 1}) == "a: 1\n"


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown format 'xml'; known: yaml, toml, json"):
        dump({"a": 1}, "xml")


def test_json_spells_what_it_lacks() -> None:
    text = dump({"a": math.inf, "b": -math.inf, "c": math.nan, "d": None}, "json")
    assert text == '{\n  "a": "$inf",\n  "b": "-$inf",\n  "c": "$nan",\n  "d": null\n}\n'
