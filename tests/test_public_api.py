"""What others depend on: exported names, verbs and their options, equal to a checked-in list."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

import epochal
from epochal.cli.parser import VERBS, build_parser

KNOWN = json.loads((Path(__file__).parent / "data" / "public_api.json").read_text())


def words_of(verb: str) -> list[str]:
    """The words and options that a verb takes, sorted."""
    (verbs,) = [
        action
        for action in build_parser(verb)._actions
        if isinstance(action, argparse._SubParsersAction)
    ]
    parser: argparse.ArgumentParser = verbs.choices[verb]
    words = [name for action in parser._actions for name in action.option_strings or [action.dest]]
    return sorted(words)


def test_exported_names_are_those_on_the_list() -> None:
    assert sorted(epochal.__all__) == KNOWN["names"]


@pytest.mark.parametrize("name", KNOWN["names"])
def test_every_exported_name_can_be_had(name: str) -> None:
    assert getattr(epochal, name) is not None
    assert name in dir(epochal)


def test_verbs_are_those_on_the_list() -> None:
    assert sorted(VERBS) == sorted(KNOWN["verbs"])


@pytest.mark.parametrize("verb", VERBS)
def test_options_of_a_verb_are_those_on_the_list(verb: str) -> None:
    assert words_of(verb) == KNOWN["verbs"][verb]


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'epochal' has no attribute 'Trainer'"):
        _ = epochal.Trainer  # type: ignore[attr-defined]
