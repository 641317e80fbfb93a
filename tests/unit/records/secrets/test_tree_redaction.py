"""Tests of epochal.records.secrets.tree_redaction."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canaries import LOOK_ALIKES, TOKENS
from epochal.config import dump, load
from epochal.records.secrets import REDACTED, iter_config_secrets, redact_config, redact_tree
from records.secrets.test_secret_names import SECRET

CANARY = "Zq7canary42"


def test_what_a_secret_name_stands_for_goes() -> None:
    for name in SECRET:
        assert redact_tree({"a": [{name: CANARY}]}) == {"a": [{name: REDACTED}]}


def test_what_a_look_alike_stands_for_is_kept() -> None:
    for name in LOOK_ALIKES:
        tree = {"a": [{name: CANARY}], "b": {name: 5}}
        assert redact_tree(tree) == tree


def test_all_below_a_secret_name_goes() -> None:
    tree = {"credentials": {"user": "me", "more": ["x1", {"y": "z"}]}}
    assert redact_tree(tree) == {
        "credentials": {"user": REDACTED, "more": [REDACTED, {"y": REDACTED}]}
    }


def test_a_pass_of_a_connection_goes() -> None:
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


def test_a_pass_of_anything_else_is_kept() -> None:
    tree = {"render": {"pass": "first", "steps": 3}, "pass": "train", "forward": {"pass": 2}}
    assert redact_tree(tree) == tree


def test_a_component_called_token_is_kept() -> None:
    tree = {"token": {"type": "linear", "dim": 8}}
    assert redact_tree(tree) == tree


def test_a_value_that_gives_nothing_away_is_kept() -> None:
    for value in [None, True, False, "", "${env:X}", "<pad>", 0.5]:
        assert redact_tree({"password": value}) == {"password": value}


def test_a_number_may_be_a_password_but_no_token() -> None:
    assert redact_tree({"password": 123456, "token": 3}) == {"password": REDACTED, "token": 3}


def test_the_value_after_an_option_goes() -> None:
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
def test_a_second_time_changes_nothing(tree: object) -> None:
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
    monkeypatch.setenv("USER_DIR", "/home/somebody")
    path = tmp_path / "x.yaml"
    path.write_text(CONFIG)
    return load(path, overrides=["db.password=another-one"]).root


def test_a_config_keeps_its_references_and_loses_its_literals(config) -> None:
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


def test_secret_values_are_literals_what_they_replaced_and_the_environment(config) -> None:
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


def test_a_key_that_is_a_word_stays_though_it_is_a_password_too() -> None:
    config = load({"password": "epochs", "epochs": 3})
    assert redact_config(config.root).to_public() == {"password": REDACTED, "epochs": 3}
