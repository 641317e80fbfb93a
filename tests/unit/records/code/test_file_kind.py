"""Tests of telling code, configs and data apart, and of removing secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.records.code.file_kind import get_file_kind, remove_secrets
from epochal.records.secrets import REDACTED

if TYPE_CHECKING:
    import pytest

TOKEN = b"ghp_" + b"a1B2" * 10
MARK = REDACTED.encode()

KINDS = {
    "code": "a.py d/a.PY a.cu look.ipynb page.html",
    "script": "run.sh paper.tex rules.mk",
    "config": "a.yaml a.TOML a.ini Makefile d/Dockerfile requirements-dev.txt .env.example",
    "data": "verses.txt a.json a.csv README.md LICENSE frame.0012",
}


def test_kinds_of_files_follow_from_their_names() -> None:
    for kind, names in KINDS.items():
        for name in names.split():
            assert get_file_kind(name) == kind, name


def test_files_without_secrets_are_unchanged() -> None:
    for name, data in {
        "a.py": b"\xff\xfe caf\xe9 token = word\r\n",
        "look.ipynb": b"token = tokenizer.next\npassword = getpass\n",
        "train": b"#!/usr/bin/env python3\ntoken = tokens\n",
        "verses.txt": b"by this token: rise\nand whisper the password: never\n",
        "words.json": b'[{"token": "rise", "tag": "VB"}, {"password": 28712, "secret": 3642}]',
        "README.md": b"token = tokenizer.next\n",
        "story.txt": b"the master key: room101 opens it\n",
        "array.bin": b"\0password: abcdef\0",
    }.items():
        assert remove_secrets(data, name) is data, name


def test_secrets_in_code_and_configs_are_replaced() -> None:
    for name, data, clean in [
        ("x.py", b"x = '%s'\xff" % TOKEN, b"x = '%s'\xff" % MARK),
        ("x.py", b"# api_key: abcd1234\n", b"# api_key: %s\n" % MARK),
        ("x.yaml", b"password: abcdef", b"password: %s" % MARK),
        ("start", b"#!/bin/sh\nexport TOKEN=abcdefgh\n", b"#!/bin/sh\nexport TOKEN=%s\n" % MARK),
    ]:
        assert remove_secrets(data, name) == clean, data
    for name in ("x.sh", "x.ini", "x.cfg", "x.toml", "Makefile"):
        assert remove_secrets(b"export TOKEN=abcdefgh\n", name) == b"export TOKEN=%s\n" % MARK, name
        assert remove_secrets(b"password = hunter2\n", name) == b"password = %s\n" % MARK, name


DOCSTRING = b'''"""Trains on the shop.

api key: %s
    password: %s
"""


def load(token):
    """Load it; the secret key: %s"""
    text = """
api key: abcd1234 of a story
    """
    return "api key: 1234", text, token


class Reader:
    """Reads.

    Args:
        token: bos1
        password: 32-character text, as an int64 or sha256
        api_key: of the service
    """
'''


def test_secrets_in_docstrings_are_replaced_and_other_texts_stay() -> None:
    values = (b"Zq7plain42", b"hunter2x", b"k33p-out")
    assert remove_secrets(DOCSTRING % values, "x.py") == DOCSTRING % (MARK, MARK, MARK)
    clean = DOCSTRING % (b"none", b"<yours>", b"...")
    assert remove_secrets(clean, "x.py") is clean


def test_data_with_a_secret_is_refused_and_never_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_PASSWORD", "correct-horse")
    for name, data in {
        "verses.txt": b"by this token: %s" % TOKEN,
        "a.csv": b"1,correct-horse\n",
        "settings.json": b'{"password": "Hunter2x"}',
        "README.md": b"api_key: abcd1234\n",
        "notes.md": b"our API key: abcd1234efgh5678\n",
        "array.bin": b"\0correct-horse\0",
        "x.py": b"\0correct-horse\0",
    }.items():
        assert remove_secrets(data, name) is None, name
