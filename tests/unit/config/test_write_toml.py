from __future__ import annotations

import math
import tomllib
from typing import Any

import pytest

from epochal.config.write_toml import write_toml


def test_a_config_is_written_with_tables() -> None:
    tree = {
        "optim": {"type": "AdamW", "lr": 3e-4, "betas": [0.9, 0.99], "deep": {"x": 1}},
        "tag": "x",
        "hooks": [{"type": "A", "options": {"k": 1}}, {"type": "B"}],
        "only": {"tables": {"y": 2}},
        "empty": {},
        "mixed": [1, {"a": [{"b": 2}]}],
        "none": [],
    }
    text = write_toml(tree)
    assert text == (
        'tag = "x"\n'
        "mixed = [1, {a = [{b = 2}]}]\n"
        "none = []\n"
        "\n"
        "[optim]\n"
        'type = "AdamW"\n'
        "lr = 0.0003\n"
        "betas = [0.9, 0.99]\n"
        "\n"
        "[optim.deep]\n"
        "x = 1\n"
        "\n"
        "[[hooks]]\n"
        'type = "A"\n'
        "\n"
        "[hooks.options]\n"
        "k = 1\n"
        "\n"
        "[[hooks]]\n"
        'type = "B"\n'
        "\n"
        "[only.tables]\n"
        "y = 2\n"
        "\n"
        "[empty]\n"
    )
    assert tomllib.loads(text) == tree


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\nb", '"a\\nb"'),
        ('"\\', '"\\"\\\\"'),
        ("\x00\x7f", '"\\u0000\\u007f"'),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (math.nan, "nan"),
        (True, "true"),
        (1e16, "1e+16"),
    ],
)
def test_scalars_are_spelled(value: Any, text: str) -> None:
    assert write_toml({"a": value}) == f"a = {text}\n"


def test_keys_are_quoted_where_they_must_be() -> None:
    assert write_toml({"a.b": {"": 1, "x-y": 2}}) == '["a.b"]\n"" = 1\nx-y = 2\n'


def test_long_lists_take_one_line_each() -> None:
    words = ["word" * 5] * 10
    text = write_toml({"a": words})
    assert text.startswith('a = [\n  "word')
    assert tomllib.loads(text) == {"a": words}
