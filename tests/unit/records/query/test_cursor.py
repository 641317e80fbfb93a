"""Tests of going through the tokens of a query."""

from __future__ import annotations

import pytest

from epochal.errors import ConfigError
from epochal.records.query.cursor import Cursor
from epochal.records.query.tokens import Written


def test_words_are_taken_in_any_case_and_only_if_they_are_there() -> None:
    cursor = Cursor(Written("NOT (a)", "--where"))
    assert not cursor.take_word("and")
    assert cursor.take_word("not")
    assert cursor.take_mark("(")
    assert cursor.take().text == "a"
    assert not cursor.take_mark(",")


def test_quoted_words_are_no_keywords() -> None:
    assert not Cursor(Written("'not'", "--where")).take_word("not")


def test_whatever_is_left_is_a_mistake() -> None:
    Cursor(Written(" ", "--where")).finish()
    with pytest.raises(ConfigError, match="expected and, or, or the end, got 'a'"):
        Cursor(Written("a", "--where")).finish()
