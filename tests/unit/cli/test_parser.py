"""Tests of the parser of the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from epochal.cli.parser import build_parser, parse_arguments

if TYPE_CHECKING:
    from small_project import Command


def test_options_of_other_verbs_are_not_loaded() -> None:
    """Help must be fast, so only the chosen verb is imported."""
    assert "--defaults" not in build_parser("runs").format_help()


def test_all_verbs_are_known_unless_a_verb_comes_first(
    epochal: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # this repository has runs after `make demo`
    assert "did you mean 'runs'?" in epochal("rnus", "show").err
    assert "  diff " in epochal("--help", "show").out
    assert "  diff " in epochal().out
    assert "no runs here" in epochal("show", "diff").err  # the name of a run


def test_unknown_arguments_are_refused(epochal: Command) -> None:
    for words, message in [
        (("run", "a.yaml", "--fst"), "unknown argument '--fst'; did you mean '--fast'?"),
        (("run", "a.yaml", "--epoch=3"), "did you mean '--epochs'?"),
        (("run", "a.yaml", "--fas"), "did you mean '--fast'?"),
        (("restore", "one", "two", "three"), "unknown argument 'three'"),
        (("run", "a.yaml", "--optim.lr=3"), "write optim.lr=3"),
        (("run", "a.yaml", "--optim.lr", "3"), "write optim.lr=VALUE"),
        (("serve", "last"), "unknown argument 'last'; did you mean '--run last'?"),
        (("restore", "one", "two", "a.yaml"), "unknown argument 'a.yaml'\n"),
        (("runs", "--zzz"), "unknown argument '--zzz'"),
        (("run", "a.yaml", "--lr", "3"), "'--lr'; write SECTION.lr=VALUE to change the config"),
        (("run", "a.yaml", "--lr=3"), "'--lr=3'; write SECTION.lr=3 to change the config"),
    ]:
        done = epochal(*words)
        assert done.code == 2, words
        assert message in done.err, words
        assert f"usage: epochal {words[0]}" in done.err, words


def test_hidden_options_are_not_suggested(epochal: Command) -> None:
    assert "--again" not in epochal("run", "a.yaml", "--agai").err


def test_values_may_begin_with_a_minus(capsys: pytest.CaptureFixture[str]) -> None:
    for words, values in [
        (["--sort", "-val/acc"], {"sort": "-val/acc"}),
        (["--sort=-val/acc"], {"sort": "-val/acc"}),
        (["--sort", "-val/acc, optim.lr"], {"sort": "-val/acc, optim.lr"}),
        (["--sort", "-optim.lr"], {"sort": "-optim.lr", "output": None}),
        (["--sort", "-optim.lr, tag"], {"sort": "-optim.lr, tag", "output": None}),
        (["--sort", "-o"], None),
        (["--sort", "--columns", "tag"], None),
        (["--sort", "tag", "-o", "-x.csv"], {"sort": "tag", "output": Path("-x.csv")}),
        (["--limit", "-3"], {"limit": -3}),
        (["--search", "--", "-x"], None),
        (["a", "--sort", "tag", "b"], {"words": ["a", "b"]}),
        (["--search", "--sort", "-x"], None),
        (["--search", "-x", "-o", "a.csv"], {"search": "-x", "output": Path("a.csv")}),
    ]:
        parser = build_parser("runs")
        if values is None:
            with pytest.raises(SystemExit):
                parse_arguments(parser, ["runs", *words])
            assert f"argument {words[0]}: expected one argument" in capsys.readouterr().err, words
        else:
            args = vars(parse_arguments(parser, ["runs", *words]))
            assert {name: args[name] for name in values} == values, words


def test_words_may_follow_options(epochal: Command, tmp_path: Path) -> None:
    done = epochal("check", "one.yaml", "--json", "two.yaml")
    assert done.code == 66
    assert '"two.yaml"' in done.out
