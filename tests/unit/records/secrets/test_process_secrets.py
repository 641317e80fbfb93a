"""Tests of epochal.records.secrets.process_secrets."""

from __future__ import annotations

import json
import re
import shlex
import threading
from base64 import b64encode, urlsafe_b64encode
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

import yaml
from hypothesis import given
from hypothesis import strategies as st

from epochal.records.secrets import redact
from epochal.records.secrets.process_secrets import (
    compile_secret_pattern,
    get_secret_values,
    hiding_secrets,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

SPELLINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "address": lambda text: quote(text, safe=""),
    "form": quote_plus,
    "address in an address": lambda text: quote(quote(text)),
    "json": json.dumps,
    "json in utf-8": lambda text: json.dumps(text, ensure_ascii=False),
    "json in json": lambda text: json.dumps(json.dumps(text)),
    "python": repr,
    "python in ascii": ascii,
    "python in python": lambda text: repr(repr(text)),
    "bytes": lambda text: repr(text.encode()),
    "shell": shlex.quote,
    "shell in json": lambda text: json.dumps(shlex.quote(text)),
    "shell with escapes": lambda text: text.replace("'", "'\\''"),
    "yaml": yaml.safe_dump,
    "yaml in utf-8": lambda text: yaml.safe_dump(text, allow_unicode=True),
    "yaml in single quotes": lambda text: yaml.safe_dump(text, default_style="'", width=8),
    "yaml in double quotes": lambda text: yaml.safe_dump(text, default_style='"', width=8),
    "yaml in lines": lambda text: yaml.safe_dump(text, default_style="|"),
    "git": lambda text: "".join(
        chr(byte) if byte < 0x80 else f"\\{byte:03o}" for byte in text.encode()
    ),
}


def test_a_text_is_found_in_every_quotation() -> None:
    for text in [
        "Zq7plain42",
        "pa\"s's\\wörd 42\nend$x`y/z",
        "über-geheim😀x",
        'a\\\\b\\"c\\\nd',
        "'quoted'",
        "C:\\ test\\\n\nnext \\n tr",
        'it\'s "mixed" & <more>;|*?',
        "100%25sure%",
        "esc\x1b[0m\0end",
    ]:
        core = max(re.findall("[A-Za-z]+", text), key=len)
        for name, quoted in SPELLINGS.items():
            found = compile_secret_pattern(text).replace(f"({quoted(text)})", "-")
            assert "-" in found, name
            assert core not in found, name


FORMS: dict[str, Callable[[str], str]] = {
    "capitals": str.upper,
    "small letters": str.lower,
    "base64": lambda text: b64encode(text.encode()).decode(),
    "base64 of a login": lambda text: b64encode(f"ann:{text}".encode()).decode(),
    "base64 in a text": lambda text: b64encode(f"{{'pw': '{text}', 'x': 1}}".encode()).decode(),
    "base64 for addresses": lambda text: urlsafe_b64encode(f"12{text}".encode()).decode(),
    "digits": lambda text: text.encode().hex(),
    "digits in capitals": lambda text: text.encode().hex().upper(),
    "address": lambda text: quote(text, safe=""),
}


def test_a_known_secret_is_found_in_other_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    for secret in ("Zq7plain42", "correct-horse-Battery~/+?", "über-geheim😀x", "k3y>>>???///aa"):
        monkeypatch.setenv("SHOP_TOKEN", secret)
        for name, encode in FORMS.items():
            form = encode(secret)
            clean = redact(f"sent <{form}> away")
            assert "redacted" in clean, (secret, name, clean)
            assert len(clean) < len(f"sent <{form}> away") or form not in clean, (secret, name)
            assert clean.endswith("> away"), (secret, name)
    monkeypatch.setenv("SHOP_TOKEN", "baseball")
    assert redact("BASEBALL, baseball") == "BASEBALL, <redacted>"  # a word


ODD = st.text(st.sampled_from("ab1nx\\\"' \n\t$%&+-#/ö😀\x1b\0"), min_size=3, max_size=10)


@given(ODD, st.sampled_from(sorted(SPELLINGS)))
def test_any_text_is_found_in_any_quotation(middle: str, name: str) -> None:
    text = f"Q{middle}Z"
    assert compile_secret_pattern(text).is_in(SPELLINGS[name](text))


@given(ODD, ODD)
def test_nothing_else_is_found(middle: str, other: str) -> None:
    assert not compile_secret_pattern(f"Q{middle}Z").is_in(f"Q{other}")


def test_redacted_json_is_valid() -> None:
    for quoted in ['"\\"abc\\" \\\\"', '"x\\u00f6y"', '"a\\\\"']:
        assert (
            json.loads(compile_secret_pattern(json.loads(quoted)).replace(quoted, "<gone>"))
            == "<gone>"
        )


def test_a_word_is_found_only_between_other_characters() -> None:
    word = compile_secret_pattern("hunter2", is_word=True)
    assert word.replace("hunter2, xhunter2, hunter22, _hunter2_", "-") == (
        "-, xhunter2, hunter22, _-_"
    )


def test_long_lines_take_linear_time() -> None:
    for text in ["a b c d e f", "\\\\x\\\\y", "'''''", "%%%%%%", "öööö"]:
        for piece in ["a ", "a+", "\\", "'", "%25", "ö", "a\\n", "\n+ "]:
            line = piece * (200_000 // len(piece))  # with the square of it, longer than a test may
            assert compile_secret_pattern(f"{text}Z").replace(line, "-") == line


def test_variables_with_secret_names_are_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "abcd-efgh-1234")
    monkeypatch.setenv("NUM_TOKENS", "abcd-efgh-5678")
    assert "abcd-efgh-1234" in get_secret_values()
    assert "abcd-efgh-5678" not in get_secret_values()


def test_a_part_of_the_current_path_is_no_secret(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    (tmp_path / "someproject").mkdir()
    monkeypatch.chdir(tmp_path / "someproject")
    monkeypatch.setenv("SOME_PASSWORD", "someproject")
    assert "someproject" not in get_secret_values()


def test_other_threads_hide_the_same_values() -> None:
    found: list[frozenset[str]] = []
    with hiding_secrets(["something secret"]):
        thread = threading.Thread(target=lambda: found.append(get_secret_values()))
        thread.start()
        thread.join()
    assert "something secret" in found[0]


def test_a_known_text_is_found_over_several_lines() -> None:
    for written in [
        "api_key: >\n  Zq7first it's\n  Zq8second\n",
        "api_key: Zq7first it's\n  Zq8second\n",
        "api_key: 'Zq7first it''s\n  Zq8second'\n",
        "+api_key: >\n+  Zq7first it's\n+  Zq8second\n",
        "# Zq7first it's\n# Zq8second\n",
    ]:
        with hiding_secrets(["Zq7first it's Zq8second"]):
            clean = redact(written)
        assert "Zq7" not in clean
        assert "Zq8" not in clean


def test_the_mark_itself_is_no_secret() -> None:
    with hiding_secrets(["redacted", "<redacted>", " redacted "]):
        assert redact("it was redacted: <redacted>") == "it was redacted: <redacted>"
