"""Tests of the command line of users' scripts."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

import epochal as ep
from epochal.experiment.config.choices import read_choices
from epochal.experiment.config.script_arguments import (
    ScriptOptions,
    config_key,
    find_args_origin,
    read_script_options,
    to_args,
)
from epochal.testing import TinyModel, TinyTask
from small_project import Command, run_folders, write


def add_options(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("--file", default="fallback.csv")
    parser.add_argument("--seed", type=int, default=99)
    parser.add_argument("--verbose", action="store_true")
    return parser


def parse(*words: str, extend: object = None) -> ep.Args:
    return ep.parse_args(["--config", "config.yaml", *words], extend=extend)  # type: ignore[arg-type]


def test_config_and_command_line_are_one_object(shop: Path) -> None:
    args = parse()
    assert args.tag == "shop"
    assert args.optim.lr == 0.05
    assert args.optim.type == "SGD"
    assert ep.parse_args(["-c", "config.yaml"]).tag == "shop"


def test_arguments_of_the_process_are_the_default(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["train.py", "-c", "config.yaml", "--optim.lr", "3"])
    assert ep.parse_args().optim.lr == 3


def test_unknown_dotted_options_change_keys(shop: Path) -> None:
    for words in (["--optim.lr", "0.25"], ["--optim.lr=0.25"], ["optim.lr=0.25"]):
        assert parse(*words).optim.lr == 0.25, words
    assert parse("--optim.lr=-0.5").optim.lr == -0.5


def test_the_function_that_adds_options_has_two_parameter_names(shop: Path) -> None:
    words = ["-c", "config.yaml", "--file", "typed.csv"]
    assert ep.parse_args(words, extend=add_options).file == "typed.csv"
    assert ep.parse_args(words, updateParser=add_options).file == "typed.csv"


def test_the_function_that_adds_options_may_return_nothing(shop: Path) -> None:
    def extend(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--file")

    assert parse("--file", "a", extend=extend).file == "a"


def test_untouched_defaults_never_override_the_file(shop: Path) -> None:
    write(shop / "config.yaml", "seed: 5\nextra: {file: from_config.csv}\n")
    args = parse(extend=add_options)
    assert args.seed == 5
    assert args.file == "from_config.csv"


def test_untouched_defaults_fill_gaps(shop: Path) -> None:
    args = parse(extend=add_options)
    assert args.file == "fallback.csv"
    assert args.seed == 99
    assert args.verbose is False


def test_typed_options_override_the_file_even_with_the_default_value(shop: Path) -> None:
    write(shop / "config.yaml", "seed: 5\nextra: {file: from_config.csv}\n")
    args = parse("--seed", "99", "--file", "fallback.csv", "--verbose", extend=add_options)
    assert (args.seed, args.file, args.verbose) == (99, "fallback.csv", True)


def test_choices_of_one_run_are_kept_for_the_experiment(shop: Path) -> None:
    args = parse("--fast", "--device", "cpu", "--test", "--local-rank", "0")
    origin = find_args_origin(args)
    assert origin is not None
    assert origin.is_test
    assert origin.choices["fast"] is True
    assert args.train.limit_batches == 3


def test_misspelt_attribute_suggests_the_closest_one(shop: Path) -> None:
    with pytest.raises(AttributeError, match="args has no 'optimm'; did you mean 'optim'"):
        _ = parse().optimm


def test_missing_attribute_can_have_a_default(shop: Path) -> None:
    assert getattr(parse(), "nothing_like_it", None) is None
    assert not hasattr(parse(), "_private")


def test_plain_values_come_back() -> None:
    values = {"a": {"b": [1, {"c": 2}]}, "d": None}
    assert to_args(values).to_plain() == values


def test_only_choices_are_taken_from_parsed_options() -> None:
    parsed = argparse.Namespace(fast=True, words=["a"], device=None)
    assert read_choices(parsed) == {"fast": True, "device": None}


def test_mistakes_end_the_script_with_a_message(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for typed, code, message in (
        ("", 2, "--config"),
        ("-c missing.yaml", 66, "missing.yaml: no such file"),
        ("-c config.yaml stray", 78, "stray: not an option and not a key=value"),
        ("-c config.yaml --optim.lr", 78, "--optim.lr: an option without a value"),
        ("-c config.yaml --a.b --c.d=1", 78, "--a.b: an option without a value"),
        ("-c config.yaml tag.x=1", 78, "tag.x"),
        ("-c config.yaml --variant hto", 78, "did you mean 'hot'?"),
        ("-c config.yaml --epochs 1 train.for=2ep", 78, "set twice"),
    ):
        with pytest.raises(SystemExit) as end:
            ep.parse_args(typed.split())
        shown = capsys.readouterr().err
        assert end.value.code == code, typed
        assert message in shown
        assert "Traceback" not in shown


def test_options_of_the_script_keep_the_type_that_the_parser_gives(shop: Path) -> None:
    def extend(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--where", type=Path, default=Path("here"))

    assert parse(extend=extend).where == Path("here")
    args = parse("--where", "there", extend=extend)
    assert args.where == Path("there")
    assert args.extra.where == "there"


def test_values_that_a_script_sets_reach_the_experiment(shop: Path) -> None:
    args = parse("--optim.lr", "0.5", "--file", "a", "extra.sizes=[1]", extend=add_options)
    args.optim.lr = 0.25
    args.train.seed_of_mine = 1
    args.file = "b"
    args.note = "new"
    args.sizes.append(3)
    config = ep.Experiment(args).inputs.config
    plain = config.root.to_plain()
    assert plain["optim"]["lr"] == 0.25
    assert plain["train"]["seed_of_mine"] == 1
    assert plain["extra"]["file"] == "b"
    assert (plain["extra"]["note"], plain["extra"]["sizes"]) == ("new", [1, 3])
    assert config.problems == ()


def test_printed_args_show_values_only(shop: Path) -> None:
    assert repr(to_args({"a": {"b": 1}})) == "Args(a=Args(b=1))"
    assert "_origin" not in repr(parse())


def test_a_script_can_resume_a_run(shop: Path) -> None:
    for option in ("--resume", "--ckp"):
        args = ep.parse_args(["-c", "config.yaml", option, "runs/x", "--from", "best"])
        choices = ep.Experiment(args).inputs.choices
        assert (choices["resume"], choices["resume_from"]) == ("runs/x", "best")
        assert not choices["allow_changed"]


def read_options(*argv: str) -> ScriptOptions:
    parser = argparse.ArgumentParser()
    actions = [
        parser.add_argument("--width", type=int, default="8"),
        parser.add_argument("--where", type=Path),
        parser.add_argument("--quiet", default=argparse.SUPPRESS),
    ]
    return read_script_options(parser, argv, actions)


def test_typed_options_and_defaults_are_separate() -> None:
    assert read_options() == ScriptOptions({}, {"width": 8, "where": None})
    assert read_options("--width", "8") == ScriptOptions({"width": 8}, {"where": None})
    assert read_options("--quiet", "yes").typed == {"quiet": "yes"}


def test_options_belong_to_a_known_section_or_to_extra() -> None:
    for name, key in {"seed": "seed", "model.width": "model.width", "width": "extra.width"}.items():
        assert config_key(name) == key


def add_typed_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--where", type=Path, default=Path("here"))
    parser.add_argument("--seed", type=int, default=None)


def read_args(*words: str) -> ep.Args:
    return ep.parse_args(["-c", "config.yaml", "--fast", *words], extend=add_typed_options)


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


def test_options_are_the_same_in_the_script_and_in_prepare_methods(shop: Path) -> None:
    def compare(width: int, *words: str) -> None:
        args = read_args(*words)
        here = (args.width, args.extra.width, args.where)
        assert here == (width, width, Path("here"))
        assert seen_in_prepare(args) == {"task": here, "model": here}

    compare(8)
    compare(9, "--width", "9")
    with (shop / "config.yaml").open("a") as file:
        file.write("extra: {width: 5}\n")
    compare(5)


def test_defaults_are_recorded_as_such(shop: Path, epochal: Command) -> None:
    seen_in_prepare(read_args())
    (folder,) = run_folders(shop)
    assert json.loads((folder / "config" / "provenance.json").read_text())["extra.width"] == [
        {"value": 8, "source": "option --width", "line": 0, "column": 0, "layer": "default"}
    ]
    assert epochal("show", "last", "--explain", "extra.width").out == (
        "extra.width = 8\n  default of option --width\n"
    )


def test_extra_exists_even_without_values(shop: Path) -> None:
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


def test_options_of_several_processes_are_accepted_in_one(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["--ddp"], ["--ddp", "true"], ["--ddp-detect"], ["--local-rank", "0"]):
        assert parse(*words).tag == "shop", words
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert parse("--ddp", "no", "--ddp-detect", "f").tag == "shop"
    assert parse("--ddp").tag == "shop"
    with pytest.raises(SystemExit, match="78"):
        parse("--ddp", "perhaps")
    assert "--ddp: expected yes or no, got 'perhaps'" in capsys.readouterr().err


def test_scripts_can_read_and_change_what_was_asked_for(shop: Path) -> None:
    args = parse("--test", "--ckp", "some/run")
    assert (args.test, args.ckp_file) == (True, "some/run")
    args = parse("--test", "--ckp-file", "some/run")
    args.test = False
    assert not ep.Experiment(args).inputs.is_test
    assert ep.Experiment(args).inputs.choices["resume"] == "some/run"
    args = parse()
    assert (args.test, args.ckp_file) == (False, None)
    args.test = True
    assert ep.Experiment(args).inputs.is_test
