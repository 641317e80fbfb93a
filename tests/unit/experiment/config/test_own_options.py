"""Tests of options that a script of one's own adds."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

import epochal as ep
from epochal.experiment.config.arguments import ScriptOptions, config_key, read_script_options
from epochal.testing import TinyModel, TinyTask
from small_project import Command, run_folders, write


def read(*argv: str) -> ScriptOptions:
    parser = argparse.ArgumentParser()
    actions = [
        parser.add_argument("--width", type=int, default="8"),
        parser.add_argument("--where", type=Path),
        parser.add_argument("--quiet", default=argparse.SUPPRESS),
    ]
    return read_script_options(parser, argv, actions)


def test_what_was_typed_is_told_apart_from_defaults() -> None:
    assert read() == ScriptOptions({}, {"width": 8, "where": None})
    assert read("--width", "8") == ScriptOptions({"width": 8}, {"where": None})
    assert read("--quiet", "yes").typed == {"quiet": "yes"}


@pytest.mark.parametrize(
    ("name", "key"),
    [("seed", "seed"), ("model.width", "model.width"), ("width", "extra.width")],
)
def test_options_land_in_a_known_section_or_in_extra(name: str, key: str) -> None:
    assert config_key(name) == key


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--where", type=Path, default=Path("here"))
    parser.add_argument("--seed", type=int, default=None)


def read_args(*words: str) -> ep.Args:
    return ep.parse_args(["-c", "config.yaml", "--fast", *words], extend=add_options)


def seen_in_prepare(args: ep.Args) -> dict[str, Any]:
    seen: dict[str, Any] = {}

    class Own(ep.Experiment):
        @staticmethod
        def prepare_task(args: ep.Args) -> ep.Task:
            seen["task"] = (args.width, args.extra.width, args.where)
            return TinyTask()

        @staticmethod
        def prepare_model(args: ep.Args) -> TinyModel:
            seen["model"] = (args.width, args.extra.width, args.where)
            return TinyModel()

    result = Own(args).fit()
    assert result.ok, result.traceback
    return seen


@pytest.mark.parametrize(
    ("words", "width"), [((), 8), (("--width", "9"), 9), (("--width", "8"), 8)]
)
def test_options_are_read_alike_in_the_script_and_in_prepare_methods(
    shop: Path, words: tuple[str, ...], width: int
) -> None:
    args = read_args(*words)
    here = (args.width, args.extra.width, args.where)
    assert here == (width, width, Path("here"))
    assert seen_in_prepare(args) == {"task": here, "model": here}


def test_file_wins_over_a_default_everywhere(shop: Path) -> None:
    with (shop / "config.yaml").open("a") as file:
        file.write("extra: {width: 5}\nseed: 7\n")
    args = read_args()
    assert (args.width, args.extra.width, args.seed) == (5, 5, 7)
    assert seen_in_prepare(args)["model"][:2] == (5, 5)
    assert read_args("--width", "8").width == 8


def test_defaults_are_recorded_as_such(shop: Path, epochal: Command) -> None:
    seen_in_prepare(read_args())
    (folder,) = run_folders(shop)
    assert json.loads((folder / "config" / "provenance.json").read_text())["extra.width"] == [
        {"value": 8, "source": "option --width", "line": 0, "column": 0, "layer": "default"}
    ]
    assert epochal("show", "last", "--explain", "extra.width").out == (
        "extra.width = 8\n  default of option --width\n"
    )


def test_extra_is_there_even_if_nobody_has_values_of_his_own(shop: Path) -> None:
    args = ep.parse_args(["-c", "config.yaml"])
    assert vars(args.extra).keys() <= {"_path"}
    with pytest.raises(AttributeError, match=r"^args\.extra has no 'width'$"):
        _ = args.extra.width
    with pytest.raises(AttributeError, match=r"^args\.optim has no 'lrr'; did you mean 'lr'\?$"):
        _ = args.optim.lrr


def test_option_for_a_key_of_the_config_fills_it(shop: Path) -> None:
    def extend(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--model.dropout", type=float, default=0.25)

    write(shop / "config.yaml", "model: {type: shop.parts.Net}\n")
    assert ep.parse_args(["-c", "config.yaml"], extend=extend).model.dropout == 0.25
