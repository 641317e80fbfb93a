"""Tests of epochal.records.secrets.tree_redaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canaries import TOKENS
from epochal.records.secrets import REDACTED, is_secret_file, redact_bytes

if TYPE_CHECKING:
    import pytest

_SECRET = """
.env .env.local prod.env config/.env .envrc server.pem tls.key a.p12 a.pfx id_rsa .ssh/id_ed25519
.ssh/config .netrc .pgpass .pypirc .npmrc .git-credentials .htpasswd .aws/credentials secrets.yaml
db_secret.json credentials.json my-credentials.toml client_secret_12.json service-account.json
kubeconfig kaggle.json token.json id_rsa.bak
"""
SECRET = _SECRET.split()
_PLAIN = """
.env.example env.py environment.yaml tokenizer.json tokens.txt keys.py key.py monkey.txt id_rsa.pub
secrets.py secretary.yaml credentials.py train.py vocab.json special_tokens_map.json keyboard.yaml
"""
PLAIN = _PLAIN.split()


def test_a_file_of_secrets_is_known_by_its_name() -> None:
    for path in SECRET:
        assert is_secret_file(path)


def test_an_ordinary_file_is_none() -> None:
    for path in PLAIN:
        assert not is_secret_file(path)


def test_bytes_without_a_secret_stay_as_they_are() -> None:
    data = b"\xff\xfe caf\xe9 token = word\r\n"
    assert redact_bytes(data, name="x.py") is data


def test_code_and_configs_lose_their_secrets() -> None:
    token = TOKENS["hugging_face"].encode()
    mark = REDACTED.encode()
    assert redact_bytes(b"x = '%s'\xff" % token, name="x.py") == b"x = '%s'\xff" % mark
    assert redact_bytes(b"password: abcdef", name="x.yaml") == b"password: %s" % mark
    assert redact_bytes(b"password: abcdef", name="x.py") == b"password: abcdef"


def test_scripts_and_settings_lose_values_without_quotes() -> None:
    mark = REDACTED.encode()
    for name in ("x.sh", "x.ini", "x.cfg", "x.toml", "Makefile"):
        assert redact_bytes(b"export TOKEN=abcdefgh\n", name=name) == b"export TOKEN=%s\n" % mark
        assert redact_bytes(b"password = hunter2\n", name=name) == b"password = %s\n" % mark
    assert redact_bytes(b"# api_key: abcd1234\n", name="x.py") == b"# api_key: %s\n" % mark
    assert redact_bytes(b"api_key: abcd1234\n", name="x.md") == b"api_key: %s\n" % mark


def test_code_is_told_by_its_name() -> None:
    for name in ["x.py", "x.ipynb", "x.sql", "README.md"]:
        code = b"token = tokenizer.next\npassword = getpass\n"
        assert redact_bytes(code, name=name) is code


def test_a_script_is_told_by_its_first_line() -> None:
    code = b"#!/usr/bin/env python3\ntoken = tokens\n"
    assert redact_bytes(code, name="train") is code


def test_a_binary_file_loses_known_secrets_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_PASSWORD", "correct-horse")
    assert redact_bytes(b"\0correct-horse\0") == b"\0*************\0"
