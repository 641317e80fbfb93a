"""Tests of the command line of users' own scripts."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

import epochal as ep
from epochal.experiment.config.arguments import find_args_origin, read_choices, to_args
from small_project import write


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


def test_short_form_of_the_config_option_works(shop: Path) -> None:
    assert ep.parse_args(["-c", "config.yaml"]).tag == "shop"


def test_words_of_the_process_are_the_default(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["train.py", "-c", "config.yaml", "--optim.lr", "3"])
    assert ep.parse_args().optim.lr == 3


@pytest.mark.parametrize(
    "words",
    [["--optim.lr", "0.25"], ["--optim.lr=0.25"], ["optim.lr=0.25"]],
)
def test_unknown_dotted_options_change_keys(shop: Path, words: list[str]) -> None:
    assert parse(*words).optim.lr == 0.25


def test_negative_values_are_given_with_an_equals_sign(shop: Path) -> None:
    assert parse("--optim.lr=-0.5").optim.lr == -0.5


@pytest.mark.parametrize("keyword", ["extend", "updateParser"])
def test_options_of_the_script_appear_under_both_parameter_names(shop: Path, keyword: str) -> None:
    args = ep.parse_args(
        ["-c", "config.yaml", "--file", "typed.csv"],
        **{keyword: add_options},  # type: ignore[arg-type]
    )
    assert args.file == "typed.csv"


def test_parser_may_be_changed_in_place(shop: Path) -> None:
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


def test_absent_attribute_can_be_asked_for(shop: Path) -> None:
    assert getattr(parse(), "nothing_like_it", None) is None
    assert not hasattr(parse(), "_private")


def test_plain_values_come_back() -> None:
    values = {"a": {"b": [1, {"c": 2}]}, "d": None}
    assert to_args(values).to_plain() == values


def test_only_choices_are_taken_from_parsed_options() -> None:
    parsed = argparse.Namespace(fast=True, words=["a"], device=None)
    assert read_choices(parsed) == {"fast": True, "device": None}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["-c", "missing.yaml"], 66, "missing.yaml: no such file"),
        (["-c", "config.yaml", "stray"], 78, "stray: not an option and not a key=value"),
        (["-c", "config.yaml", "--optim.lr"], 78, "--optim.lr: an option without a value"),
        (["-c", "config.yaml", "--a.b", "--c.d=1"], 78, "--a.b: an option without a value"),
        (["-c", "config.yaml", "tag.x=1"], 78, "tag.x"),
        (["-c", "config.yaml", "--variant", "hto"], 78, "did you mean 'hot'?"),
        (["-c", "config.yaml", "--epochs", "1", "train.for=2ep"], 78, "set twice"),
    ],
)
def test_mistakes_end_the_script_with_a_message(
    shop: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, message: str
) -> None:
    with pytest.raises(SystemExit) as end:
        ep.parse_args(words)
    assert end.value.code == code
    shown = capsys.readouterr().err
    assert message in shown
    assert "Traceback" not in shown


def test_config_is_required(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        ep.parse_args([])
    assert "--config" in capsys.readouterr().err


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


@pytest.mark.parametrize("option", ["--resume", "--ckp"])
def test_script_goes_on_with_a_run(shop: Path, option: str) -> None:
    args = ep.parse_args(["-c", "config.yaml", option, "runs/x", "--from", "best"])
    choices = ep.Experiment(args).inputs.choices
    assert (choices["resume"], choices["resume_from"]) == ("runs/x", "best")
    assert not choices["allow_changed"]
