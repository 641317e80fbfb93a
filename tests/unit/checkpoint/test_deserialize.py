"""Tests of epochal.checkpoint.deserialize; round trips are in test_tree."""

from __future__ import annotations

import pytest

from epochal.checkpoint.deserialize import Deserializer
from epochal.errors import CheckpointError


def test_plain_json_is_left_as_it_is() -> None:
    assert Deserializer({}).visit({"a": [1, None, "x"]}) == {"a": [1, None, "x"]}


def test_tags_become_what_they_stand_for() -> None:
    assert Deserializer({}).visit({"$tuple": [{"$int": "0x10"}, {"$bytes": "YQ=="}]}) == (16, b"a")


def test_tag_of_a_newer_version_is_named() -> None:
    with pytest.raises(CheckpointError, match=r"state: unknown tag '\$later', made by a newer"):
        Deserializer({}).visit({"$later": 1})
