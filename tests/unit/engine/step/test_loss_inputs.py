from __future__ import annotations

import torch
from torch import nn

from epochal.engine.step.loss_inputs import (
    example_route,
    find_count_argument,
    guess_route,
    list_names,
    read_parameters,
)

X, Y = torch.zeros(4, 3), torch.zeros(4)


def test_the_arguments_of_a_module_are_those_of_its_forward() -> None:
    needed, known = read_parameters(nn.TripletMarginLoss())
    assert needed == known == ["anchor", "positive", "negative"]


def test_what_has_a_default_is_known_but_not_needed() -> None:
    assert read_parameters(lambda a, b=1, *, c: a) == (["a", "c"], ["a", "b", "c"])


def test_a_function_that_takes_anything_knows_any_name() -> None:
    assert read_parameters(lambda **more: more) == ([], [None])


def test_a_whole_output_or_batch_is_asked_for_by_name() -> None:
    assert guess_route("out", 0, 2, {"a": X}, [X, Y]) == (True, ())
    assert guess_route("batch", 1, 2, {"a": X}, [X, Y]) == (False, ())


def test_a_name_that_only_one_of_both_has_is_that_one() -> None:
    assert guess_route("label", 3, 4, {"logits": X}, {"label": Y}) == (False, ("label",))
    assert guess_route("logits", 3, 4, {"logits": X}, {"label": Y}) == (True, ("logits",))
    assert guess_route("x", 0, 2, {"x": X}, {"x": X}) is None


def test_the_first_argument_is_the_only_tensor_of_the_output() -> None:
    assert guess_route("input", 0, 2, X, [X, Y]) == (True, ())
    assert guess_route("input", 0, 2, {"logits": X, "note": "a"}, [X, Y]) == (True, ("logits",))
    assert guess_route("input", 0, 2, {"logits": X, "aux": X}, [X, Y]) is None


def test_the_second_of_two_is_the_second_of_a_pair() -> None:
    assert guess_route("target", 1, 2, X, [X, Y]) == (False, ("1",))
    assert guess_route("target", 1, 2, X, {"image": X, "label": Y}) is None
    assert guess_route("target", 1, 2, X, [X, Y, Y]) is None
    assert guess_route("target", 1, 3, X, [X, Y]) is None


def test_items_are_counted_by_the_target_or_else_by_what_comes_first_from_the_batch() -> None:
    routes = {"input": (True, ("a",)), "mask": (False, ("m",)), "target": (False, ("y",))}
    assert find_count_argument(routes) == "target"
    del routes["target"]
    assert find_count_argument(routes) == "mask"
    assert find_count_argument({"batch": (False, ())}) == ""


def test_examples_of_routes_use_names_that_are_there() -> None:
    sources = {"out": {"logits": X}, "batch": {"image": X, "label": Y}}
    assert example_route("input", sources) == "out.logits"
    assert example_route("target", sources) == "batch.label"
    assert example_route("out", sources) == "out"
    assert list_names(sources["batch"]) == "image, label"
    assert list_names(X) == "no names, it is a Tensor"
