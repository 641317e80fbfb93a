"""Tests of layers and their table."""

from __future__ import annotations

import torch
from torch import nn

from epochal.engine.analysis.layers import (
    Layer,
    count_flops,
    find_layers,
    fold_layers,
    format_amount,
    layer_lines,
)


def block() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))


def looked_at(model: nn.Module, size: int = 4) -> Layer:
    with torch.no_grad():
        return find_layers(model, count_flops(lambda: model(torch.zeros(1, size)), model))


def figures(layer: Layer) -> dict[str, tuple[int, int, int]]:
    return {one.name: (one.parameters, one.trained, one.tied) for _, one in layer.walk()}


def test_layers_sum_to_the_model() -> None:
    model = nn.Sequential(nn.Linear(4, 2), block())
    model[0].requires_grad_(False)
    found = figures(find_layers(model))
    assert found[""] == (50, 40, 0)
    assert found["0"] == (10, 0, 0)
    assert (found["1"], found["1.1"]) == ((40, 40, 0), (0, 0, 0))


def test_tied_parameters_count_once() -> None:
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    found = figures(find_layers(model))
    assert found == {"": (20, 20, 16), "0": (16, 16, 0), "1": (4, 4, 16)}
    model[1].bias = None
    assert "tied" in layer_lines(find_layers(model), rows=20)[-1]


def test_a_repeated_module_appears_once() -> None:
    layer = nn.Linear(4, 4)
    found = looked_at(nn.Sequential(layer, layer))
    assert [one.name for one in found.children] == ["0"]
    assert (found.children[0].calls, found.children[0].flops, found.flops) == (2, 64, 64)


def test_parameters_beside_layers_have_rows() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    model.register_parameter("scale", nn.Parameter(torch.ones(3)))
    assert [(one.name, one.kind) for one in find_layers(model).children] == [
        ("scale", "Parameter"),
        ("0", "Linear"),
    ]
    assert find_layers(nn.Linear(2, 2)).children == ()


def test_a_model_without_parameters_has_layers_too() -> None:
    found = find_layers(nn.Sequential(nn.ReLU()))
    assert (found.parameters, len(found.children)) == (0, 1)
    assert find_layers(nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 1))).parameters == 5
    assert layer_lines(found)[1].split() == ["0", "ReLU", "0", "0"]
    assert len(layer_lines(found, rows=20)) == 1


def test_equal_layers_in_a_row_are_folded() -> None:
    model = nn.Sequential(nn.Linear(4, 2), nn.Linear(2, 4), *(block() for _ in range(3)))
    folded = fold_layers(looked_at(model))
    assert [(one.name, one.repeats) for one in folded.children] == [("0", 1), ("1", 1), ("2-4", 3)]
    blocks = folded.children[-1]
    assert (blocks.parameters, blocks.flops) == (120, 3 * 64)
    (linear,) = [one for one in blocks.children if one.name == "2-4.0-2"]
    assert (linear.repeats, linear.parameters) == (6, 120)


def test_different_layers_are_not_folded() -> None:
    model = nn.Sequential(block(), block())
    model[1][0].requires_grad_(False)
    assert [one.name for one in fold_layers(looked_at(model)).children] == ["0", "1"]


def test_the_depth_of_the_table_is_limited_by_its_rows() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4)), nn.Linear(4, 3))
    found = looked_at(model)
    assert [line.split()[0] for line in layer_lines(found, rows=4)] == ["layer", "0", "0", "1", "1"]
    assert [line.split()[0] for line in layer_lines(found, rows=3)] == ["layer", "0", "1"]
    first = layer_lines(found, rows=3)[1].split()
    assert first == ["0", "Sequential", "76", "84%", "128", "84%"]


def test_further_rows_are_summed() -> None:
    found = looked_at(nn.Sequential(*(nn.Linear(size, size + 1) for size in range(4, 10))))
    lines = layer_lines(found, rows=2)
    assert [line.split()[0] for line in lines] == ["layer", "0", "1", "4"]
    assert "4 more" in lines[-1]


def test_amounts_have_three_digits() -> None:
    table = [
        ((0, ""), "0"),
        ((950, ""), "950"),
        ((1234, ""), "1.23 k"),
        ((45.6e6, "B"), "45.6 MB"),
        ((7, "B"), "7 B"),
    ]
    for arguments, expected in table:
        assert format_amount(*arguments) == expected
