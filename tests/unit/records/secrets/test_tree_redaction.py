"""Tests of epochal.records.secrets.tree_redaction."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canaries import LOOK_ALIKES, TOKENS
from epochal.config import dump, load
from epochal.records.secrets import (
    REDACTED,
    is_secret_file,
    iter_config_secrets,
    redact_config,
    redact_tree,
)
from records.secrets.test_secret_names import SECRET

CANARY = "Zq7canary42"


def test_values_of_secret_names_are_redacted() -> None:
    for name in SECRET:
        assert redact_tree({"a": [{name: CANARY}]}) == {"a": [{name: REDACTED}]}


def test_values_of_look_alikes_are_unchanged() -> None:
    for name in LOOK_ALIKES:
        tree = {"a": [{name: CANARY}], "b": {name: 5}}
        assert redact_tree(tree) == tree


def test_everything_below_a_secret_name_is_redacted() -> None:
    tree = {"credentials": {"user": "me", "more": ["x1", {"y": "z"}]}}
    assert redact_tree(tree) == {
        "credentials": {"user": REDACTED, "more": [REDACTED, {"y": REDACTED}]}
    }


def test_the_pass_of_a_connection_is_redacted() -> None:
    for tree in [
        {"smtp": {"pass": CANARY}},
        {"smtp": {"server": {"pass": CANARY}}},
        {"other": {"user": "me", "pass": CANARY}},
        {"other": {"db_user": "me", "PASS": CANARY}},
        {"notify": [{"type": "smtp", "pass": CANARY}]},
    ]:
        assert CANARY not in str(redact_tree(tree))
        assert redact_tree(tree) != tree
        config = load(tree).root
        assert list(iter_config_secrets(config)) == [CANARY]
        assert CANARY not in str(redact_config(config).to_public())


def test_another_pass_is_unchanged() -> None:
    tree = {"render": {"pass": "first", "steps": 3}, "pass": "train", "forward": {"pass": 2}}
    assert redact_tree(tree) == tree


def test_a_component_called_token_is_unchanged() -> None:
    tree = {"token": {"type": "linear", "dim": 8}}
    assert redact_tree(tree) == tree


def test_placeholders_are_unchanged() -> None:
    for value in [None, True, False, "", "${env:X}", "<pad>", 0.5]:
        assert redact_tree({"password": value}) == {"password": value}


def test_a_number_may_be_a_password_but_no_token() -> None:
    assert redact_tree({"password": 123456, "token": 3}) == {"password": REDACTED, "token": 3}


def test_the_value_after_an_option_is_redacted() -> None:
    argv = ["run", "--api-key", CANARY, "x.yaml", "--lr", "3"]
    assert redact_tree(argv) == ["run", "--api-key", REDACTED, "x.yaml", "--lr", "3"]


def test_texts_keys_and_paths_are_redacted() -> None:
    token = TOKENS["github"]
    assert redact_tree({token: Path("a") / token}) == {REDACTED: f"a/{REDACTED}"}


TREES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from([*SECRET, *LOOK_ALIKES]), inner, max_size=3),
    ),
    max_leaves=8,
)


@given(TREES)
def test_redaction_is_idempotent(tree: object) -> None:
    once = redact_tree(tree)
    assert redact_tree(once) == once


CONFIG = f"""\
env: [DB, USER_DIR]
db:
  address: ${{env:DB}}
  folder: ${{env:USER_DIR}}
  password: {CANARY}
  token: ${{env:DB}}
  remote: https://me:{CANARY}@host/x
num_tokens: 5
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DB", "xyz-1234-abcd")
    monkeypatch.setenv("USER_DIR", "/home/user")
    path = tmp_path / "x.yaml"
    path.write_text(CONFIG)
    return load(path, overrides=["db.password=another-one"]).root


def test_a_config_keeps_references_and_loses_literals(config) -> None:
    assert redact_config(config).to_public() == {
        "env": ["DB", "USER_DIR"],
        "db": {
            "address": "${env:DB}",
            "folder": "${env:USER_DIR}",
            "password": REDACTED,
            "token": "${env:DB}",
            "remote": f"https://{REDACTED}@host/x",
        },
        "num_tokens": 5,
    }


def test_secrets_of_a_config_include_overridden_values(config) -> None:
    assert set(iter_config_secrets(config)) == {CANARY, "another-one", "xyz-1234-abcd"}


def test_a_config_without_its_secrets_can_still_be_read(tmp_path: Path) -> None:
    for format in ["json", "toml", "yaml"]:
        for values in [
            {"args": ["--api-key", CANARY, "x"]},
            {"a": {TOKENS["github"]: 1}},
            {"password": CANARY, "a": {f"{CANARY} x": 1}},
        ]:
            clean = redact_config(load(values).root)
            path = tmp_path / f"config.{format}"
            path.write_text(dump(clean, format))
            assert CANARY not in path.read_text()
            assert TOKENS["github"] not in path.read_text()
            assert load(path).root.to_public() == clean.to_public()


def test_the_value_after_an_option_in_a_config_is_a_secret() -> None:
    assert list(iter_config_secrets(load({"args": ["--api-key", CANARY, "x"]}).root)) == [CANARY]


def test_a_key_that_equals_a_password_is_unchanged() -> None:
    config = load({"password": "epochs", "epochs": 3})
    assert redact_config(config.root).to_public() == {"password": REDACTED, "epochs": 3}


SECRET_FILES = """
.env .env.local prod.env config/.env .envrc server.pem tls.key a.p12 a.pfx id_rsa .ssh/id_ed25519
.ssh/config .netrc .pgpass .pypirc .npmrc .git-credentials .htpasswd .aws/credentials secrets.yaml
db_secret.json credentials.json my-credentials.toml client_secret_12.json service-account.json
kubeconfig kaggle.json token.json id_rsa.bak
"""
PLAIN_FILES = """
.env.example env.py environment.yaml tokenizer.json tokens.txt keys.py key.py monkey.txt id_rsa.pub
secrets.py secretary.yaml credentials.py train.py vocab.json special_tokens_map.json keyboard.yaml
"""


def test_files_with_secrets_are_recognised_by_name() -> None:
    assert [path for path in SECRET_FILES.split() if not is_secret_file(path)] == []
    assert [path for path in PLAIN_FILES.split() if is_secret_file(path)] == []
