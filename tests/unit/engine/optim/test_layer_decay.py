"""Tests of the numbers of a model's layers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from epochal.engine.optim.param_groups import number_layers
from epochal.errors import ConfigError, TaskError


class Deep(nn.Module):
    """A token, an embedding, three blocks with a list of two in each, a norm and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.zeros(2))
        self.embed = nn.Linear(2, 2, bias=False)
        self.blocks = nn.ModuleList(
            [nn.Sequential(nn.Linear(2, 2, bias=False), nn.LayerNorm(2)) for _ in range(3)]
        )
        self.norm = nn.LayerNorm(2, bias=False)
        self.head = nn.Linear(2, 2, bias=False)


def numbers(model: nn.Module) -> dict[str, int]:
    return number_layers(model, dict(model.named_parameters()))


def test_layers_are_the_children_of_the_longest_list() -> None:
    assert numbers(Deep()) == {
        "token": 0,
        "embed.weight": 0,
        **{
            f"blocks.{i}.{name}": i + 1
            for i in range(3)
            for name in ("0.weight", "1.weight", "1.bias")
        },
        "norm.weight": 4,
        "head.weight": 4,
    }


def test_children_without_parameters_do_not_count_as_layers() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 2, bias=False))
    assert numbers(model) == {"0.weight": 1, "2.weight": 2}


def test_layer_of_of_the_model_numbers_the_layers() -> None:
    class Own(Deep):
        def layer_of(self, name: str) -> int | None:
            return int(name.split(".")[1]) // 2 if name.startswith("blocks") else None

    found = numbers(Own())
    assert (found["blocks.0.0.weight"], found["blocks.2.0.weight"]) == (0, 1)
    assert found["token"] == found["head.weight"] == 1


def test_layer_of_must_return_a_number_of_a_layer() -> None:
    for wrong in ("first", -1, 0.5):
        model = Deep()
        model.layer_of = lambda name, wrong=wrong: wrong
        with pytest.raises(TaskError, match=rf"Deep\.layer_of: gave {wrong!r} for 'token'"):
            numbers(model)


def test_a_model_without_layers_is_refused_with_a_hint() -> None:
    with pytest.raises(ConfigError, match=r"optim\.layer_decay: Linear has no ModuleList") as error:
        numbers(nn.Linear(2, 2))
    assert "layer_of(name)" in str(error.value)


def test_only_layers_of_the_given_parameters_count() -> None:
    model = nn.ModuleDict({"small": Deep(), "large": nn.Sequential(*[Deep() for _ in range(5)])})
    names = [name for name, _ in model.named_parameters() if name.startswith("small.")]
    found = number_layers(model, names)
    assert (found["small.token"], found["small.blocks.2.0.weight"]) == (0, 3)
