from __future__ import annotations

import math
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from epochal.config import Config, dump, from_plain, load
from epochal.config.type_aliases import ALIASES

if TYPE_CHECKING:
    from pathlib import Path

FORMATS = ("yaml", "toml", "json")
RESERVED = {"$BASE", "variants", "sweep", "env", *ALIASES}


def reload(text: str, format: str, folder: Path) -> Config:
    path = folder / f"config.{format}"
    path.write_bytes(text.encode())
    return load(path)


texts = st.text(max_size=20).filter(lambda text: "$" not in text)
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
    min_size=1,
    max_size=4,
)


@pytest.mark.parametrize("format", FORMATS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(tree=trees)
def test_what_is_written_is_read_back_unchanged(format, tmp_path, tree) -> None:
    text = dump(tree, format)
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


def test_a_written_node_is_read_back_too(tmp_path) -> None:
    for format in FORMATS:
        tree = {"a": [1, {"b": None}], "c": -math.inf, "d": "${x}", "e": {}, "f": [], "g": math.nan}
        again = reload(dump(from_plain(tree), format), format, tmp_path).root.to_plain()
        assert ordered(again) == ordered(tree), format


def test_values_of_the_environment_are_not_written(tmp_path, monkeypatch) -> None:
    for format in FORMATS:
        monkeypatch.setenv("EPOCHAL_TOKEN", "secret")
        source = {"env": ["EPOCHAL_TOKEN"], "a": "${env:EPOCHAL_TOKEN}", "b": ["x-${a}"]}
        config = load(source)
        assert config.root.to_plain()["b"] == ["x-secret"], format
        text = dump(config.root, format)
        assert "secret" not in text, format
        assert "x-${env:EPOCHAL_TOKEN}" in text, format
        assert reload(text, format, tmp_path).root.to_plain() == config.root.to_plain()


def test_other_references_are_written_filled_in_and_yaml_is_the_default() -> None:
    assert dump(load({"a": 1, "b": "${a}"}).root) == "a: 1\nb: 1\n"


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown format 'xml'; known: yaml, toml, json"):
        dump({"a": 1}, "xml")


def test_json_spells_what_it_lacks() -> None:
    text = dump({"a": math.inf, "b": -math.inf, "c": math.nan, "d": None}, "json")
    assert text == '{\n  "a": "$inf",\n  "b": "-$inf",\n  "c": "$nan",\n  "d": null\n}\n'


TREE = {
    "optim": {"type": "AdamW", "lr": 3e-4, "betas": [0.9, 0.99], "deep": {"x": 1}},
    "tag": "-val/err",
    "hooks": [{"type": "A", "options": {"k": 1}}, {"type": "B"}],
    "only": {"tables": {"z": 2}},
    "empty": {},
    "mixed": [1, {"a": [{"b": 2}]}],
    "none": [],
}
YAML = """\
optim:
  type: AdamW
  lr: 0.0003
  betas: [0.9, 0.99]
  deep:
    x: 1
tag: -val/err
hooks:
  - type: A
    options:
      k: 1
  - type: B
only:
  tables:
    z: 2
empty: {}
mixed:
  - 1
  - a:
      - b: 2
none: []
"""
TOML = """\
tag = "-val/err"
mixed = [1, {a = [{b = 2}]}]
none = []

[optim]
type = "AdamW"
lr = 0.0003
betas = [0.9, 0.99]

[optim.deep]
x = 1

[[hooks]]
type = "A"

[hooks.options]
k = 1

[[hooks]]
type = "B"

[only.tables]
z = 2

[empty]
"""


def test_yaml_is_written_in_block_style_and_toml_with_tables() -> None:
    assert dump(TREE, "yaml") == YAML
    assert dump(TREE, "toml") == TOML
    assert tomllib.loads(TOML) == TREE


SCALARS = [
    ("1", '"1"', '"1"'), ("no", '"no"', '"no"'), ("null", '"null"', '"null"'),
    ("1_000", '"1_000"', '"1_000"'), ("a: b", '"a: b"', '"a: b"'), ("", '""', '""'),
    ("- a", '"- a"', '"- a"'), ("a\nb", '"a\\nb"', '"a\\nb"'), ('"\\', '"\\"\\\\"', '"\\"\\\\"'),
    ("\x85\x07\ufeff", '"\\u0085\\u0007\\ufeff"', '"\x85\\u0007\ufeff"'),
    ("\x7f", '"\\u007f"', '"\\u007f"'), ("ä😀", '"ä😀"', '"ä😀"'), ("a b", "a b", '"a b"'),
    (math.inf, ".inf", "inf"), (-math.inf, "-.inf", "-inf"), (math.nan, ".nan", "nan"),
    (True, "true", "true"), (None, "null", '"$null"'), (1e-5, "1e-05", "1e-05"),
]  # fmt: skip


def test_scalars_are_quoted_where_they_must_be() -> None:
    for value, yaml, toml in SCALARS:
        assert dump({"a": value}, "yaml") == f"a: {yaml}\n"
        assert dump({"a": value}, "toml") == f"a = {toml}\n"


def test_keys_are_quoted_where_they_must_be() -> None:
    keys = {"a b": 1, "1": 2, "on": 3, "": 4, "$x": 5}
    assert dump(keys, "yaml") == '"a b": 1\n"1": 2\n"on": 3\n"": 4\n$x: 5\n'
    assert dump({"a.b": {"": 1, "x-y": 2}}, "toml") == '["a.b"]\n"" = 1\nx-y = 2\n'


def test_long_lists_take_one_line_each() -> None:
    words = [f"word{i}" for i in range(20)]
    assert dump({"a": words}, "yaml").splitlines()[1:] == [f"  - {word}" for word in words]
    text = dump({"a": words}, "toml")
    assert text.startswith('a = [\n  "word0",\n')
    assert tomllib.loads(text) == {"a": words}


@given(
    st.dictionaries(
        st.text("ab1.-_$ ", max_size=5),
        st.none() | st.booleans() | st.integers() | texts | st.lists(texts, max_size=5),
    )
)
def test_other_readers_of_yaml_agree(tree) -> None:
    yaml = pytest.importorskip("yaml")
    assert yaml.safe_load(dump(tree)) == tree
