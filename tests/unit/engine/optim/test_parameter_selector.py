"""Tests of finding parameters by pattern and by class."""

from __future__ import annotations

from torch import nn

from epochal.engine.optim.select_parameters import ParameterSelector, matches_pattern


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


def test_a_pattern_matches_names_and_what_is_under_them() -> None:
    bias = "encoder.linear.bias"
    matching = ["encoder", "encoder.*", "*.bias", "encoder.linear", "*.linear"]
    assert [one for one in matching if not matches_pattern(bias, one)] == []
    assert [one for one in ("linear", "Encoder") if matches_pattern(bias, one)] == []
    assert matches_pattern("scale", "scale")
    assert not matches_pattern("scale.x", "scale?")
    assert not matches_pattern("encoder2.bias", "encoder")


def test_tied_parameters_are_found_by_each_of_their_names() -> None:
    selector = ParameterSelector(Tied())
    assert selector.by_name("out.weight") == selector.by_name("embed") == {"embed.weight"}
    assert "out.weight" not in selector.parameters


def test_a_class_is_found_by_its_name_and_by_dotted_paths() -> None:
    selector = ParameterSelector(Tied())
    for path in ("", "torch.nn.", "torch.nn.modules.normalization."):
        found = selector.by_class(f"{path}LayerNorm")
        assert found == {"encoder.norm.weight", "encoder.norm.bias"}, path
    for absent in ("torch.nn.Conv2d", "Conv2d", "gone.away.LayerNorm"):
        assert selector.by_class(absent) == set(), absent


def test_a_class_matches_subclasses_and_all_parameters_in_them() -> None:
    class Own(Encoder):
        pass

    model = nn.ModuleDict({"a": Own(), "b": nn.Linear(1, 1)})
    assert ParameterSelector(model).by_class("Encoder") == {
        f"a.{part}.{name}" for part in ("norm", "linear") for name in ("weight", "bias")
    }
    assert ParameterSelector(Tied()).by_class("Tied") == set(ParameterSelector(Tied()).parameters)


def test_a_hint_lists_near_names_or_all() -> None:
    selector = ParameterSelector(Tied())
    assert selector.suggest_names("encodr.*").startswith("near it: encoder")
    assert selector.suggest_names("encoder.liner.bias").startswith("near it: encoder.linear.bias")
    assert selector.suggest_classes("torch.nn.LayrNorm") == "near it: LayerNorm"
    assert selector.suggest_names("zzz").startswith("there are: ")
    assert "encoder" in selector.suggest_names("zzz")
    assert "LayerNorm" in selector.suggest_classes("Conv2d")


def test_classes_without_parameters_are_not_suggested() -> None:
    model = nn.Sequential(nn.Linear(1, 1), nn.ReLU())
    assert ParameterSelector(model).suggest_classes("ReLU") == "there are: Linear"


def test_the_selection_can_be_limited_and_extended() -> None:
    extra = nn.Parameter(nn.Linear(1, 1).weight.detach())
    selector = ParameterSelector(Tied(), only={"embed.weight", "task.x"}, more={"task.x": extra})
    assert list(selector.parameters) == ["embed.weight", "task.x"]
    assert selector.by_name("*") == {"embed.weight", "task.x"}
    assert selector.by_class("LayerNorm") == set()
