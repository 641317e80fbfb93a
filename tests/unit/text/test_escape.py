"""Tests of text between terminals, files and folders."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epochal.text.escape import (
    decode_typed,
    escape_control,
    escape_control_json,
    replace_unencodable,
    to_file_name,
    to_openable_path,
)

ASCII = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}


def evaluated(code: str) -> str:
    """The ``repr`` of an expression in a Python that knows nothing but ASCII."""
    script = f"from epochal.text.escape import *; print(ascii({code}))"
    done = subprocess.run(
        [sys.executable, "-c", script], env=ASCII, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize("text", ["plain", "größe", ""])
def test_usual_text_stays_as_it_is(text: str) -> None:
    assert (
        decode_typed(text)
        == to_file_name(text)
        == to_openable_path(text)
        == replace_unencodable(text, "utf-8")
        == text
    )


def test_bytes_that_python_did_not_decode_are_utf_8() -> None:
    assert decode_typed("gr\udcc3\udcb6\udcc3\udc9fe") == "größe"
    assert decode_typed("\udcff") == "\N{REPLACEMENT CHARACTER}"


def test_terminal_shows_what_it_can() -> None:
    assert replace_unencodable("größe", "ascii") == "gr??e"
    assert replace_unencodable("größe", None) == "größe"


def test_folder_gets_a_name_that_can_be_made() -> None:
    assert evaluated("to_file_name('gr\\u00f6\\u00dfe')") == "'gr--e'"


def test_recorded_path_is_found_again() -> None:
    assert evaluated("to_openable_path('/\\u00f6')") == r"'/\udcc3\udcb6'"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ü 漢字\u3000🏳️‍🌈", "plain ü 漢字\u3000🏳️‍🌈"),
        ("a\tb\nc\r\nd", "a\tb\nc\nd"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x1b]8;;http://x\x07link", "\\x1b]8;;http://x\\x07link"),
        ("\x1b]52;c;aGk=\x1b\\", "\\x1b]52;c;aGk=\\x1b\\"),
        ("done\rfailed\b", "done\\rfailed\\x08"),
        ("\x9b2J\x7f\x00", "\\x9b2J\\x7f\\x00"),
        ("\u202etxt.exe\u2066\u200f", "\\u202etxt.exe\\u2066\\u200f"),
        ("\ud800\u2028", "\\ud800\\u2028"),
    ],
)
def test_what_a_terminal_would_obey_is_shown(text: str, shown: str) -> None:
    assert escape_control(text) == shown


@given(st.text(st.characters()))
def test_nothing_that_is_printed_steers_and_a_second_time_changes_nothing(text: str) -> None:
    once = escape_control(text)
    assert escape_control(once) == once
    assert all(char in "\n\t" or char.isprintable() or ord(char) > 0x9F for char in once)


@given(st.recursive(st.text(st.characters()), lambda inner: st.dictionaries(st.text(), inner)))
def test_json_stays_the_same_json(value: object) -> None:
    shown = escape_control_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(shown) == value
    assert escape_control(shown) == shown
