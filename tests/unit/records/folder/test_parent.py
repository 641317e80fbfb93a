"""Tests of epochal.records.folder.folder."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from epochal.records.folder.folder import PARENT_VARIABLE, Parent, pop_parent_variable, read_parent

if TYPE_CHECKING:
    import pytest


def test_the_parent_is_read_once_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    parent = Parent("20261115-125010-57c7", "retried")
    for name, value in parent.to_environment().items():
        monkeypatch.setenv(name, value)
    assert pop_parent_variable() == parent
    assert PARENT_VARIABLE not in os.environ
    assert pop_parent_variable() is None


def test_an_invalid_variable_is_no_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ["", "trial", "trial:", "cousin:abc", ":abc"]:
        monkeypatch.setenv(PARENT_VARIABLE, text)
        assert pop_parent_variable() is None


def test_parent_is_read_from_a_record() -> None:
    parent = Parent("abc", "fold")
    assert read_parent({"parent": parent.to_json()}) == parent


def test_record_without_a_parent_has_none() -> None:
    for value in [None, "abc", {}, {"run": "abc"}, {"run": 3, "kind": "fold"}, {"kind": "fold"}]:
        assert read_parent({"parent": value}) is None
