"""Tests of finding parameters by pattern and by class."""

from __future__ import annotations

import pytest
from torch import nn

from epochal.engine.optim.parameter_selector import ParameterSelector, matches_pattern


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(2)
        self.linear = nn.Linear(2, 2)


class Tied(nn.Module):
    """An output layer that shares its weight with the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(3, 2)
        self.encoder = Encoder()
        self.out = nn.Linear(2, 3, bias=False)
        self.out.weight = self.embed.weight


@pytest.mark.parametrize(
    ("name", "pattern", "is_so"),
    [
        ("encoder.linear.bias", "encoder", True),
        ("encoder.linear.bias", "encoder.*", True),
        ("encoder.linear.bias", "*.bias", True),
        ("encoder.linear.bias", "encoder.linear", True),
        ("encoder.linear.bias", "*.linear", True),
        ("encoder2.bias", "encoder", False),
        ("encoder.linear.bias", "linear", False),
        ("encoder.linear.bias", "Encoder", False),
        ("scale", "scale", True),
        ("scale.x", "scale?", False),
    ],
)
def test_a_pattern_means_names_and_what_is_under_them(name: str, pattern: str, is_so: bool) -> None:
    assert matches_pattern(name, pattern) is is_so


def test_tied_parameters_are_found_by_each_of_their_names() -> None:
    selector = ParameterSelector(Tied())
    assert selector.by_name("out.weight") == selector.by_name("embed") == {"embed.weight"}
    assert "out.weight" not in selector.parameters


@pytest.mark.parametrize(
    "wanted", ["LayerNorm", "torch.nn.LayerNorm", "torch.nn.modules.normalization.LayerNorm"]
)
def test_a_class_has_a_name_and_dotted_paths(wanted: str) -> None:
    found = ParameterSelector(Tied()).by_class(wanted)
    assert found == {"encoder.norm.weight", "encoder.norm.bias"}


def test_a_class_means_all_that_its_modules_hold_and_subclasses_too() -> None:
    class Own(Encoder):
        pass

    model = nn.ModuleDict({"a": Own(), "b": nn.Linear(1, 1)})
    assert ParameterSelector(model).by_class("Encoder") == {
        f"a.{part}.{name}" for part in ("norm", "linear") for name in ("weight", "bias")
    }
    assert ParameterSelector(Tied()).by_class("Tied") == set(ParameterSelector(Tied()).parameters)


@pytest.mark.parametrize("wanted", ["torch.nn.Conv2d", "Conv2d", "gone.away.LayerNorm"])
def test_a_class_that_does_not_occur_means_nothing(wanted: str) -> None:
    assert ParameterSelector(Tied()).by_class(wanted) == set()


def test_names_near_a_pattern_are_told() -> None:
    selector = ParameterSelector(Tied())
    assert selector.suggest_names("encodr.*").startswith("near it: encoder")
    assert selector.suggest_names("encoder.liner.bias").startswith("near it: encoder.linear.bias")
    assert selector.suggest_classes("torch.nn.LayrNorm") == "near it: LayerNorm"


def test_what_there_is_is_told_where_nothing_is_near() -> None:
    selector = ParameterSelector(Tied())
    assert selector.suggest_names("zzz").startswith("there are: ")
    assert "encoder" in selector.suggest_names("zzz")
    assert "LayerNorm" in selector.suggest_classes("Conv2d")


def test_classes_without_parameters_are_no_suggestion() -> None:
    model = nn.Sequential(nn.Linear(1, 1), nn.ReLU())
    assert ParameterSelector(model).suggest_classes("ReLU") == "there are: Linear"


def test_only_some_parameters_can_be_found_and_others_beside_the_model() -> None:
    extra = nn.Parameter(nn.Linear(1, 1).weight.detach())
    selector = ParameterSelector(Tied(), only={"embed.weight", "task.x"}, more={"task.x": extra})
    assert list(selector.parameters) == ["embed.weight", "task.x"]
    assert selector.by_name("*") == {"embed.weight", "task.x"}
    assert selector.by_class("LayerNorm") == set()
