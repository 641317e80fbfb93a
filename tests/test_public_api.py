"""Exported names, verbs and options are those of tests/data/public_api.json."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import epochal
from epochal.cli.parser import VERBS, build_parser

if TYPE_CHECKING:
    from collections.abc import Iterator

KNOWN = json.loads((Path(__file__).parent / "data" / "public_api.json").read_text())


def words_of(verb: str) -> list[str]:
    """The words and options that a verb takes, sorted."""
    (verbs,) = [
        action
        for action in build_parser(verb)._actions
        if isinstance(action, argparse._SubParsersAction)
    ]
    return sorted(iter_words(verbs.choices[verb]))


def iter_words(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        yield from action.option_strings or [action.dest]
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from (f"{name} {word}" for word in iter_words(inner))


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
