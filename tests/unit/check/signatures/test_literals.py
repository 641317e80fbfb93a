from __future__ import annotations

import ast
import math
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from epochal.check.signatures.literals import (
    MISSING,
    Opaque,
    read_field_default,
    read_literal,
    to_plain,
)
from epochal.registry.module_finder import ModuleFinder

if TYPE_CHECKING:
    from epochal.registry.parsed_module import Module


@pytest.fixture
def module(tmp_path: Path) -> Module:
    (tmp_path / "m.py").write_text("WIDTH = 64\nTWICE = WIDTH\nLOOP = LOOP\nBIG = WIDTH * 2")
    found = ModuleFinder([tmp_path]).find_module("m")
    assert found is not None
    return found


def test_literals_are_read(module: Module) -> None:
    for text, value in (
        ("3", 3),
        ("-1e-3", -0.001),
        ("(0.9, 0.999)", [0.9, 0.999]),
        ("{'a': [1, None]}", {"a": [1, None]}),
        ("WIDTH", 64),
        ("TWICE", 64),
        ("Path('runs')", "runs"),
        ("pathlib.Path('runs')", "runs"),
        ("Every.parse('50st')", "50st"),
        ("parse_duration('1ep')", "1ep"),
        ("float('inf')", math.inf),
        ("math.inf", math.inf),
        ("dict()", {}),
        ("tuple()", []),
    ):
        assert read_literal(ast.parse(text, mode="eval").body, module) == value


def test_defaults_that_must_be_computed_are_opaque(module: Module) -> None:
    for text, shown in (
        ("BIG", "BIG"),
        ("LOOP", "LOOP"),
        ("unknown", "unknown"),
        ("f(1)", "f(1)"),
        ("nn.ReLU", "nn.ReLU"),
        ("{1: 2}", "{1: 2}"),
        ("b'x'", "b'x'"),
        ("[1, 2j]", "[1, 2j]"),
    ):
        assert read_literal(ast.parse(text, mode="eval").body, module) == Opaque(shown)


def test_defaults_of_dataclass_fields_are_read(module: Module) -> None:
    for text, value in (
        ("field(default=3)", 3),
        ("field(default_factory=list)", []),
        ("field(default_factory=lambda: [1])", [1]),
        ("field(default_factory=make)", Opaque("make")),
        ("field(repr=False)", MISSING),
    ):
        call = ast.parse(text, mode="eval").body
        assert isinstance(call, ast.Call), text
        assert read_field_default(call, module) == value


def test_live_values_become_plain_data() -> None:
    assert to_plain({"a": (1, Path("b"))}) == {"a": [1, "b"]}
    assert isinstance(to_plain({1: 2}), Opaque)
    assert isinstance(to_plain([object()]), Opaque)
