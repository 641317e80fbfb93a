"""Tests of building components from config."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import epochal as ep
from epochal.config import from_plain
from epochal.errors import ConfigError, Place
from epochal.experiment.build.builder import Builder
from epochal.experiment.record.open_record import to_recordable
from epochal.registry import Registry, find_project
from small_project import write


def make_builder(folder: Path) -> Builder:
    return Builder(Registry(find_project(folder)))


def build_in(folder: Path, section: dict[str, object]) -> tuple[object, dict[str, object]]:
    builder = make_builder(folder)
    node = from_plain(section, place=Place("test"))
    return builder.build(builder.read(node, "model", "model")), builder.observed


def test_spec_becomes_an_object_with_its_arguments(shop: Path) -> None:
    layer = ep.build({"type": "torch.nn.Linear", "in_features": 3, "out_features": 2})
    assert isinstance(layer, nn.Linear)
    assert layer.weight.shape == (2, 3)


def test_nested_specs_are_built_first(shop: Path) -> None:
    write(
        shop / "shop" / "nested.py",
        """
        class Outer:
            def __init__(self, inner, others: list = ()):
                self.inner, self.others = inner, others
        """,
    )
    relu = {"type": "torch.nn.ReLU"}
    outer = ep.build({"type": "shop.nested.Outer", "inner": relu, "others": [relu, relu]})
    assert isinstance(outer.inner, nn.ReLU)
    assert [type(other) for other in outer.others] == [nn.ReLU, nn.ReLU]


def test_names_of_a_section_work_with_its_kind(shop: Path) -> None:
    assert type(ep.build({"type": "EarlyStopping", "patience": 2}, kind="hooks")).__name__ == (
        "EarlyStopping"
    )


def test_project_dir_is_the_folder_of_the_code(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    net = ep.build({"type": "shop.parts.Net", "dropout": 0.5}, project_dir=shop)
    assert net.dropout.p == 0.5


def test_observed_arguments_are_those_that_the_constructor_received(shop: Path) -> None:
    write(
        shop / "shop" / "seen.py",
        """
        from pathlib import Path
        class Seen:
            def __init__(self, path: Path, size: tuple[int, int] = (1, 2), *, deep: bool = False):
                pass
        """,
    )
    _, observed = build_in(shop, {"type": "shop.seen.Seen", "path": "a/b"})
    assert observed == {
        "model": {
            "type": "shop.seen.Seen",
            "arguments": {"path": "a/b", "size": [1, 2], "deep": False},
        }
    }


def test_supplied_arguments_are_not_observed(shop: Path) -> None:
    builder = make_builder(shop)
    node = from_plain({"type": "SGD", "lr": 0.5}, place=Place("test"))
    parameters = [nn.Parameter(torch.zeros(1))]
    optimizer = builder.build(builder.read(node, "optim", "optim"), params=parameters)
    assert optimizer.param_groups[0]["params"] == parameters
    arguments = builder.observed["optim"]["arguments"]  # type: ignore[index]
    assert arguments["lr"] == 0.5
    assert "params" not in arguments


def test_error_of_a_constructor_says_which_part_was_built(shop: Path) -> None:
    with pytest.raises(KeyError) as caught:
        build_in(shop, {"type": "shop.parts.Stumbling"})
    assert caught.value.__notes__ == ["while building model (shop.parts.Stumbling)"]


def test_our_own_errors_get_no_note(shop: Path) -> None:
    write(
        shop / "shop" / "own.py",
        """
        from epochal.errors import DataError
        def broken():
            raise DataError("no data\\n  download it")
        """,
    )
    with pytest.raises(ep.EpochalError, match="no data") as caught:
        build_in(shop, {"type": "shop.own.broken"})
    assert not hasattr(caught.value, "__notes__")


def test_values_are_recorded_as_plain_data() -> None:
    value = {
        "a": (1, 2.5),
        "p": Path("x"),
        "s": {"only"},
        "d": ep.Duration(3, "ep"),
        "t": nn.ReLU(),
    }
    assert to_recordable(value) == {
        "a": [1, 2.5],
        "p": "x",
        "s": ["only"],
        "d": "3ep",
        "t": "<torch.nn.modules.activation.ReLU>",
    }


def test_arguments_that_do_not_fit_are_a_mistake_of_the_config(shop: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"torch\.nn\.modules\.linear\.Linear does not accept these arguments"
    ):
        ep.build({"type": "torch.nn.Linear", "in_features": 3})


def test_unknown_components_and_kinds_suggest_the_closest_one(shop: Path) -> None:
    with pytest.raises(ConfigError, match="Net"):
        ep.build({"type": "shop.parts.Nett"})
    with pytest.raises(ConfigError, match=r"kind: there is no section 'modl'.*\n.*'model'"):
        ep.build({"type": "torch.nn.ReLU"}, kind="modl")
