from __future__ import annotations

import ast

from epochal.check.signatures.parameters import (
    Parameter,
    Signature,
    add_docs,
    annotation_of,
    key_of,
)
from epochal.registry.module_finder import ModuleFinder


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
