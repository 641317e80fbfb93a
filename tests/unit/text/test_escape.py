"""Tests of text for terminals, file names and encodings."""

from __future__ import annotations

import json
import subprocess
import sys

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
    """The ``repr`` of an expression in a Python whose locale is ASCII."""
    script = f"from epochal.text.escape import *; print(ascii({code}))"
    done = subprocess.run(
        [sys.executable, "-c", script], env=ASCII, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_text_in_utf_8_does_not_change() -> None:
    for text in ("plain", "größe", ""):
        for convert in (decode_typed, to_file_name, to_openable_path):
            assert convert(text) == text, convert
        assert replace_unencodable(text, "utf-8") == text


def test_undecoded_bytes_are_decoded_as_utf_8() -> None:
    assert decode_typed("gr\udcc3\udcb6\udcc3\udc9fe") == "größe"
    assert decode_typed("\udcff") == "\N{REPLACEMENT CHARACTER}"


def test_characters_that_an_encoding_lacks_become_question_marks() -> None:
    assert replace_unencodable("größe", "ascii") == "gr??e"
    assert replace_unencodable("größe", None) == "größe"


def test_an_ascii_locale_can_create_folders_and_open_recorded_paths() -> None:
    assert evaluated("to_file_name('gr\\u00f6\\u00dfe')") == "'gr--e'"
    assert evaluated("to_openable_path('/\\u00f6')") == r"'/\udcc3\udcb6'"


def test_control_characters_are_escaped() -> None:
    for text, shown in (
        ("plain ü 漢字\u3000🏳️‍🌈", "plain ü 漢字\u3000🏳️‍🌈"),
        ("a\tb\nc\r\nd", "a\tb\nc\nd"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x1b]8;;http://x\x07link", "\\x1b]8;;http://x\\x07link"),
        ("\x1b]52;c;aGk=\x1b\\", "\\x1b]52;c;aGk=\\x1b\\"),
        ("done\rfailed\b", "done\\rfailed\\x08"),
        ("\x9b2J\x7f\x00", "\\x9b2J\\x7f\\x00"),
        ("\u202etxt.exe\u2066\u200f", "\\u202etxt.exe\\u2066\\u200f"),
        ("\ud800\u2028", "\\ud800\\u2028"),
    ):
        assert escape_control(text) == shown


@given(st.text(st.characters()))
def test_escaped_text_has_no_control_characters_and_is_not_escaped_again(text: str) -> None:
    once = escape_control(text)
    assert escape_control(once) == once
    assert all(char in "\n\t" or char.isprintable() or ord(char) > 0x9F for char in once)


@given(st.recursive(st.text(st.characters()), lambda inner: st.dictionaries(st.text(), inner)))
def test_escaped_json_is_equivalent(value: object) -> None:
    shown = escape_control_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(shown) == value
    assert escape_control(shown) == shown
