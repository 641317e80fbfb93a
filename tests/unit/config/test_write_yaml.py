from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epochal.config.write_yaml import write_yaml


def test_a_config_is_written_in_block_style() -> None:
    tree = {
        "tag": "digits-mlp",
        "optim": {"type": "torch.optim.AdamW", "lr": 3e-4, "betas": [0.9, 0.99]},
        "hooks": [{"type": "EarlyStopping", "patience": 5}, "x"],
        "monitor": "-val/err",
        "train": {"for": "10ep", "max_time": None},
        "empty": {},
        "none": [],
        "nested": [[1, {"a": 2}]],
    }
    assert write_yaml(tree) == (
        "tag: digits-mlp\n"
        "optim:\n"
        "  type: torch.optim.AdamW\n"
        "  lr: 0.0003\n"
        "  betas: [0.9, 0.99]\n"
        "hooks:\n"
        "  - type: EarlyStopping\n"
        "    patience: 5\n"
        "  - x\n"
        "monitor: -val/err\n"
        "train:\n"
        "  for: 10ep\n"
        "  max_time: null\n"
        "empty: {}\n"
        "none: []\n"
        "nested:\n"
        "  - - 1\n"
        "    - a: 2\n"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("1", '"1"'),
        ("no", '"no"'),
        ("null", '"null"'),
        ("1_000", '"1_000"'),
        ("a: b", '"a: b"'),
        ("", '""'),
        ("- a", '"- a"'),
        ("a\nb", '"a\\nb"'),
        ("\x85\x07\ufeff", '"\\x85\\x07\\ufeff"'),
        ("ä😀", '"ä😀"'),
        ("a b", "a b"),
        (math.inf, ".inf"),
        (-math.inf, "-.inf"),
        (math.nan, ".nan"),
        (True, "true"),
        (1e-5, "1e-05"),
    ],
)
def test_scalars_are_quoted_where_they_must_be(value: Any, text: str) -> None:
    assert write_yaml({"a": value}) == f"a: {text}\n"


def test_keys_are_quoted_where_they_must_be() -> None:
    assert write_yaml({"a b": 1, "1": 2, "on": 3, "": 4, "$x": 5}) == (
        '"a b": 1\n"1": 2\n"on": 3\n"": 4\n$x: 5\n'
    )


def test_long_lists_take_one_line_each() -> None:
    words = [f"word{i}" for i in range(20)]
    assert write_yaml({"a": words}).splitlines()[1:] == [f"  - {word}" for word in words]


@given(
    st.dictionaries(
        st.text("ab1.-_$ ", max_size=5),
        st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text(max_size=5)),
    )
)
def test_other_readers_agree(tree: dict[str, Any]) -> None:
    yaml = pytest.importorskip("yaml")
    assert yaml.safe_load(write_yaml(tree)) == tree
