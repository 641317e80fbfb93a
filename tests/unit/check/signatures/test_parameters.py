"""Parameters, and their defaults read from source."""

from __future__ import annotations

import ast
import math
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from epochal.check.signatures.parameters import (
    MISSING,
    Opaque,
    Parameter,
    Signature,
    add_docs,
    annotation_of,
    key_of,
    read_field_default,
    read_literal,
    to_plain,
)
from epochal.registry.module_finder import ModuleFinder

if TYPE_CHECKING:
    from epochal.registry.parsed_module import Module


def test_type_aliases_of_the_module_are_resolved(signature_of) -> None:
    text = """
        from typing import Literal
        Mode = Literal["min", "max"]
        Modes = list[Mode]
        def make(mode: Mode | None = None, modes: "Modes" = (), many: dict[str, Modes] = {}): ...
    """
    mode, modes, many = signature_of(text, "make").parameters
    assert mode.annotation == "Literal['min', 'max'] | None"
    assert modes.annotation == "'Modes'"
    assert many.annotation == "dict[str, list[Literal['min', 'max']]]"


def test_a_recursive_alias_is_kept(write_files) -> None:
    module = ModuleFinder([write_files({"m.py": "A = A | None\nB = int"})]).find_module("m")
    assert module is not None
    assert annotation_of(None, module) == ""
    assert annotation_of(ast.parse("B", mode="eval").body, module) == "int"
    assert "A" in annotation_of(ast.parse("A", mode="eval").body, module)


def test_a_trailing_underscore_is_not_part_of_a_key() -> None:
    assert [key_of(name) for name in ("for_", "_", "lr", "a_b")] == ["for", "_", "lr", "a_b"]


def test_existing_documentation_is_kept() -> None:
    first, second = Parameter("a", doc="own", argument="a"), Parameter("b", argument="b_")
    found = add_docs((first, second), {"a": "other", "b_": "text"})
    assert [item.doc for item in found] == ["own", "text"]
    assert Signature("x", found).get("b") == found[1]


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
