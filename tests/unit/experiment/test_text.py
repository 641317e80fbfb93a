"""Tests of text where Python was told of no encoding but ASCII."""

from __future__ import annotations

import subprocess
import sys

import pytest

from epochal.experiment.text import on_disk, reachable, readable, showable

ASCII = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}


def evaluated(code: str) -> str:
    """The ``repr`` of an expression in a Python that knows nothing but ASCII."""
    script = f"from epochal.experiment.text import *; print(ascii({code}))"
    done = subprocess.run(
        [sys.executable, "-c", script], env=ASCII, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize("text", ["plain", "größe", ""])
def test_usual_text_stays_as_it_is(text: str) -> None:
    assert readable(text) == on_disk(text) == reachable(text) == showable(text, "utf-8") == text


def test_bytes_that_python_did_not_decode_are_utf_8() -> None:
    assert readable("gr\udcc3\udcb6\udcc3\udc9fe") == "größe"
    assert readable("\udcff") == "\N{REPLACEMENT CHARACTER}"


def test_terminal_shows_what_it_can() -> None:
    assert showable("größe", "ascii") == "gr??e"
    assert showable("größe", None) == "größe"


def test_folder_gets_a_name_that_can_be_made() -> None:
    assert evaluated("on_disk('gr\\u00f6\\u00dfe')") == "'gr--e'"


def test_recorded_path_is_found_again() -> None:
    assert evaluated("reachable('/\\u00f6')") == r"'/\udcc3\udcb6'"
