"""Tests of the tree of a query."""

from __future__ import annotations

from epochal.records.query.tokens import Token
from epochal.records.query.tree import Name, Value

WORD, TEXT = Token("word", "1", 0, 1), Token("text", "1", 0, 3)


def test_names_are_shown_as_they_are_typed() -> None:
    assert Name("val/acc", WORD).shown == "val/acc"
    assert Name("val/acc", WORD, "max").shown == "max(val/acc)"


def test_values_in_quotes_are_texts() -> None:
    assert Value("1", TEXT).is_quoted
    assert not Value("1", WORD).is_quoted
