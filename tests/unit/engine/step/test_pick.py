from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

import pytest

from epochal.engine.step.loss_inputs import find_by_path, find_missing_name, known_names


class Pair(NamedTuple):
    x: int
    y: int


@pytest.mark.parametrize(
    ("source", "path", "found"),
    [
        ({"a": 1}, "a", 1),
        ({"a": {"b": 2}}, "a.b", 2),
        ([5, 6], "1", 6),
        (Pair(3, 4), "y", 4),
        (Pair(3, 4), "0", 3),
        (SimpleNamespace(a=[{"b": 7}]), "a.0.b", 7),
        ({"a": 1}, "b", None),
        ([5, 6], "2", None),
        ({"a": 1}, "a.b", None),
    ],
)
def test_keys_attributes_and_positions_lead_to_values(source, path, found) -> None:
    assert find_by_path(source, path.split(".")) == found


def test_an_empty_path_is_the_whole() -> None:
    assert find_by_path(5, ()) == 5


def test_the_first_wrong_name_of_a_path_is_found_with_those_that_are_there() -> None:
    assert find_missing_name({"a": {"b": 1, "c": 2}}, ["a", "d", "e"]) == ("d", ["b", "c"])
    assert find_missing_name({"a": 1}, ["a"]) == ("", [])


def test_names_of_any_kind_of_batch_are_known() -> None:
    assert known_names({"a": 1}) == ["a"]
    assert known_names([1, 2]) == ["0", "1"]
    assert known_names(Pair(1, 2)) == ["x", "y"]
    assert known_names(SimpleNamespace(a=1, _b=2)) == ["a"]
    assert known_names("text") == []
