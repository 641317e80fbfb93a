"""Tests of finding the inputs of a loss function."""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

import torch
from torch import nn

from epochal.engine.loss.argument_routes import (
    example_route,
    find_by_path,
    find_count_argument,
    find_missing_name,
    guess_route,
    known_names,
    list_names,
    read_parameters,
)

X, Y = torch.zeros(4, 3), torch.zeros(4)


class Pair(NamedTuple):
    x: int
    y: int


def test_needed_and_accepted_arguments_are_read_from_the_signature() -> None:
    needed, known = read_parameters(nn.TripletMarginLoss())
    assert needed == known == ["anchor", "positive", "negative"]
    assert read_parameters(lambda a, b=1, *, c: a) == (["a", "c"], ["a", "b", "c"])
    assert read_parameters(lambda **more: more) == ([], [None])


def test_routes_are_guessed_only_if_they_are_unambiguous() -> None:
    logits, label = {"logits": X}, {"label": Y}
    table = [
        (("out", 0, 2, {"a": X}, [X, Y]), (True, ())),
        (("batch", 1, 2, {"a": X}, [X, Y]), (False, ())),
        (("label", 3, 4, logits, label), (False, ("label",))),
        (("logits", 3, 4, logits, label), (True, ("logits",))),
        (("x", 0, 2, {"x": X}, {"x": X}), None),
        (("input", 0, 2, X, [X, Y]), (True, ())),
        (("input", 0, 2, {"logits": X, "note": "a"}, [X, Y]), (True, ("logits",))),
        (("input", 0, 2, {"logits": X, "aux": X}, [X, Y]), None),
        (("target", 1, 2, X, [X, Y]), (False, ("1",))),
        (("target", 1, 2, X, {"image": X, "label": Y}), (False, ("label",))),
        (("labels", 1, 2, X, {"image": X, "y": Y}), (False, ("y",))),
        (("target", 1, 2, X, {"y": X, "label": Y}), None),
        (("target", 1, 2, X, {"image": X, "size": Y}), None),
        (("target", 1, 2, X, [X, Y, Y]), None),
        (("target", 1, 3, X, [X, Y]), None),
    ]
    for arguments, route in table:
        assert guess_route(*arguments) == route, arguments[:3]


def test_items_are_counted_by_the_target_or_the_first_argument_from_the_batch() -> None:
    routes = {"input": (True, ("a",)), "mask": (False, ("m",)), "target": (False, ("y",))}
    assert find_count_argument(routes) == "target"
    del routes["target"]
    assert find_count_argument(routes) == "mask"
    assert find_count_argument({"batch": (False, ())}) == ""


def test_example_routes_use_existing_names() -> None:
    sources = {"out": {"logits": X}, "batch": {"image": X, "label": Y}}
    assert example_route("input", sources) == "out.logits"
    assert example_route("target", sources) == "batch.label"
    assert example_route("out", sources) == "out"
    assert list_names(sources["batch"]) == "image, label"
    assert list_names(X) == "no names, it is a Tensor"


def test_paths_follow_keys_attributes_and_positions() -> None:
    table = [
        ({"a": 1}, "a", 1),
        ({"a": {"b": 2}}, "a.b", 2),
        ([5, 6], "1", 6),
        (Pair(3, 4), "y", 4),
        (Pair(3, 4), "0", 3),
        (SimpleNamespace(a=[{"b": 7}]), "a.0.b", 7),
        ({"a": 1}, "b", None),
        ([5, 6], "2", None),
        ({"a": 1}, "a.b", None),
    ]
    for source, path, found in table:
        assert find_by_path(source, path.split(".")) == found, (source, path)
    assert find_by_path(5, ()) == 5
    assert find_missing_name({"a": {"b": 1, "c": 2}}, ["a", "d", "e"]) == ("d", ["b", "c"])
    assert find_missing_name({"a": 1}, ["a"]) == ("", [])


def test_any_kind_of_batch_has_names() -> None:
    batches = [{"a": 1}, [1, 2], Pair(1, 2), SimpleNamespace(a=1, _b=2), "text"]
    assert [known_names(one) for one in batches] == [["a"], ["0", "1"], ["x", "y"], ["a"], []]
