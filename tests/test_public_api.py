"""Exported names, verbs and options are those of tests/data/public_api.json."""

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


def test_every_exported_name_can_be_imported() -> None:
    assert [name for name in KNOWN["names"] if getattr(epochal, name) is None] == []
    assert {*KNOWN["names"]} <= {*dir(epochal)}


def test_verbs_and_their_options_are_those_on_the_list() -> None:
    assert {verb: words_of(verb) for verb in VERBS} == KNOWN["verbs"]


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'epochal' has no attribute 'Trainer'"):
        _ = epochal.Trainer  # type: ignore[attr-defined]
