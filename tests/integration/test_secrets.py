"""No secret that a run uses is in its files; text that only looks like one is kept."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from keyword import iskeyword
from typing import TYPE_CHECKING

import pytest
import yaml

import epochal as ep
from canaries import LOOK_ALIKES, TOKENS
from epochal.config import load
from epochal.config.scalar import REDACTED
from epochal.records import read_run
from small_project import Command, Done, run_folders, write

if TYPE_CHECKING:
    from pathlib import Path

PLACES = """
config_password config_api_key config_nested config_list config_url config_signed config_comment
config_number_like config_text base_replaced other_variant override override_quoted desc
argv_option argv_equals environment_secret environment_reference
log_assignment log_json log_header log_cookie log_exception log_url event_name event_text
traceback_message traceback_cause traceback_source notice_value meta_value
code_literal code_config code_env_file code_key_file git_remote git_diff
quoted smtp_pass user_pass file_pass remark remark_behind notebook_remark notebook_command
script_export script_default settings_ini settings_toml page image
"""
PLACES = {
    name: f"Zq{number:02}canary{number * 7919 % 100003:05}x"
    for number, name in enumerate(PLACES.split())
}

QUOTED = f'it\'s "{PLACES["quoted"]}" \\ größe\nand $more'
"""A secret that looks different wherever it is quoted."""

PARTS = """
import json
import logging
import os
import shlex
from pathlib import Path
from urllib.parse import quote

import yaml

import epochal as ep
from shop.parts import Points

logger = logging.getLogger("shop.vault")
C = json.loads(Path(os.environ["CANARIES"]).read_text())

PASSWORD = "CODE_LITERAL"
# api_key: REMARK
PORT = 25  # password = REMARK_BEHIND


class Vault(Points):
    def __init__(self, *, password: str, api_key: str, token: str, url: str, signed: str,
                 text: str, address: str, options: dict, num_tokens: int, tokenizer: str,
                 passphrase: str, note: str) -> None:
        super().__init__()
        self.meta = {"classes": ["token", "secret"], "access_token": C['meta_value']}
        assert password == C['config_password'], password
        assert token == C['override'], token
        assert address == C['environment_reference'], address
        assert num_tokens == 77
        assert passphrase == C['quoted_text'], passphrase


class Talk(ep.Hook):
    def __init__(self, *, client_secret: str = "") -> None:
        pass

    def run_start(self, run):
        logger.warning("password=%s", C['log_assignment'])
        logger.warning(json.dumps({"api_key": C["log_json"]}))
        logger.warning(f"Authorization: Bearer {C['log_header']}")
        logger.warning(f"Cookie: a={C['log_cookie']}; b=2")
        logger.warning(f"cannot reach https://me:{C['log_url']}@host/x")
        logger.warning("the environment says %s", os.environ["VAULT_API_KEY"])
        logger.warning("num_tokens=77 kept-look-alike")
        for spell in (str, repr, ascii, json.dumps, shlex.quote, quote, yaml.safe_dump):
            logger.warning("it opens with %s", spell(C["quoted_text"]))
        for token in C["tokens"]:
            logger.warning("found %s there", token)
        try:
            raise KeyError(f"secret: {C['log_exception']}")
        except KeyError:
            logger.exception("it failed")
        text = f"token={C['event_text']}"
        run.writer.event("note", api_key=C["event_name"], text=text, num_tokens=77)

    def step_end(self, run):
        if run.step == 2:
            try:
                raise OSError(f"password: {C['traceback_cause']}")
            except OSError as error:
                place = os.environ["VAULT_ADDRESS"]
                words = f"refused: api_key={C['traceback_message']} at {place}"
                words += f" by {C['quoted_text']!r} or {C['config_password']}"
                raise ValueError(words) from error  # token="TRACEBACK_SOURCE"
"""
CONFIG = """
$BASE: [config.yaml, locks.yaml]
env: [VAULT_ADDRESS]
desc: "what does it cost? password={desc}"
hooks: [{{type: shop.vault.Talk, client_secret: {notice_value}}}]
task:
  type: shop.vault.Vault
  password: {config_password}
  # api_key: {config_comment}
  api_key: "{config_api_key}"
  token: {override_quoted}
  url: https://me:{config_url}@host/x
  signed: https://bucket/x?X-Amz-Signature={config_signed}&part=3
  text: "a note with password={config_text} in it"
  passphrase: {quoted_json}
  note: {quoted_yaml}
  address: ${{env:VAULT_ADDRESS}}
  num_tokens: 77
  tokenizer: kept-look-alike
  options:
    secrets: {{door: {config_nested}}}
    cookies: [{config_list}]
    private_key: {config_number_like}
    smtp: {{host: mail.org, pass: {smtp_pass}}}
    other: {{user: me, pass: {user_pass}}}
variants:
  other: {{task: {{password: {other_variant}}}}}
"""


FILES = {
    "mail.yaml": f"server:\n  user: me\n  pass: {PLACES['file_pass']}\n",
    "run.sh": f"export TOKEN={PLACES['script_export']}\n"
    f'echo "${{API_KEY:-{PLACES["script_default"]}}}"\n',
    "settings.ini": f"[db]\npassword = {PLACES['settings_ini']}\n",
    "settings.toml": f"password = {PLACES['settings_toml']}\n",
    "README.md": f"Set the key:\n\n    api_key: {PLACES['page']}\n",
    "Dockerfile": f"ENV API_KEY {PLACES['image']}\n",
    "look.ipynb": json.dumps(
        {
            "cells": [
                f"x = 1  # token: {PLACES['notebook_remark']}\n",
                f"%env HF_TOKEN={PLACES['notebook_command']}\n",
            ]
        },
        indent=1,
    ),
}


def _is_variable(name: str) -> bool:
    return name.isidentifier() and not iskeyword(name)


CODE = """
from getpass import getpass

class Tokenizer:
    def next(self):
        return "a"

tokenizer = Tokenizer()
token = tokenizer.next()
tokens42 = {"#": token}
if "#" in tokens42: token = tokens42  # a token and no secret
password = getpass if token else getpass()
""" + "\n".join(f"{name} = token  # {name}: abcd1234" for name in LOOK_ALIKES if _is_variable(name))


@pytest.fixture
def vault(shop: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write(shop / "shop" / "vault.py", _with_literals(PARTS))
    secrets = shop.parent / "canaries.json"
    secrets.write_text(
        json.dumps({**PLACES, "quoted_text": QUOTED, "tokens": list(TOKENS.values())})
    )
    monkeypatch.setenv("CANARIES", str(secrets))
    quoted = {
        "quoted_json": json.dumps(QUOTED),
        "quoted_yaml": yaml.safe_dump(f"see {QUOTED}", default_style='"', width=1000).strip(),
    }
    write(shop / "vault.yaml", CONFIG.format(**PLACES, **quoted))
    write(shop / "shop" / "words.py", CODE)
    for name, text in FILES.items():
        write(shop / name, text)
    write(shop / "locks.yaml", f"task: {{password: {PLACES['base_replaced']}}}")
    write(shop / "service.yaml", f"db: {{password: {PLACES['code_config']}}}\n")
    write(shop / ".env", f"PASSWORD={PLACES['code_env_file']}\n")
    write(shop / "server.key", PLACES["code_key_file"])
    _make_repository(shop)
    monkeypatch.setenv("VAULT_API_KEY", PLACES["environment_secret"])
    monkeypatch.setenv("VAULT_ADDRESS", PLACES["environment_reference"])
    words = ["epochal", "run", "vault.yaml", "--token", PLACES["argv_option"]]
    monkeypatch.setattr(sys, "argv", [*words, f"--api-key={PLACES['argv_equals']}"])
    return shop


def _with_literals(code: str) -> str:
    for name in ("code_literal", "traceback_source", "remark_behind", "remark"):
        code = code.replace(name.upper(), PLACES[name])
    return code


def _make_repository(folder: Path) -> None:
    def git(*words: str) -> None:
        name = ("-c", "user.name=me", "-c", "user.email=me@host")
        subprocess.run(["git", "-C", str(folder), *name, *words], check=True, capture_output=True)

    git("init", "-q")
    write(folder / "notes.yaml", "a: 1\n")
    git("add", "notes.yaml")
    git("commit", "-qm", "first")
    git("remote", "add", "origin", f"https://me:{PLACES['git_remote']}@host/x.git")
    write(folder / "notes.yaml", f"a: 1\nclient_secret: {PLACES['git_diff']}\n")


def hits(folder: Path) -> list[tuple[str, str]]:
    """Every secret in a file below a folder."""
    secrets = {**PLACES, **TOKENS}
    return [
        (name, str(path.relative_to(folder)))
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
        for name, value in secrets.items()
        if value.encode() in path.read_bytes()
    ]


def test_no_secret_is_in_what_a_run_leaves(vault: Path, epochal: Command) -> None:
    assert len({**PLACES, **TOKENS}) >= 60
    done = epochal("run", "vault.yaml", f"task.token={PLACES['override']}")
    (folder,) = run_folders(vault)
    assert done.code != 0
    assert "refused" in (folder / "result.json").read_text()
    assert epochal("index").code == 0
    assert (vault / "runs" / ".epochal" / "index.db").is_file()
    found = hits(vault / "runs")
    assert not found, "\n".join(map(str, found))
    assert leaked(done) == []
    assert "refused: api_key=<redacted> at <redacted> by '<redacted>' or <redacted>" in " ".join(
        line.strip("│ ") for line in done.err.splitlines()
    )
    shown = [epochal("show", "last"), epochal("show", "last", "--log"), epochal("mail", "last")]
    assert [leaked(one) for one in shown] == [[], [], []]


def leaked(done: Done) -> list[str]:
    """Every secret in the output of a command, also across lines of a frame."""
    joined = re.sub(r"[\s│]", "", done.out + done.err)
    return [name for name, value in {**PLACES, **TOKENS}.items() if value in joined]


def test_messages_about_mistakes_hide_secrets(vault: Path, epochal: Command) -> None:
    wrong = [f"optim.lr={PLACES['config_password']}", f"task.tokenizr={PLACES['config_api_key']}"]
    done = epochal("run", "vault.yaml", f"task.token={PLACES['override']}", *wrong)
    assert done.code == 78
    assert "optim.lr: expected a number, got '<redacted>'" in done.err
    assert leaked(done) == []


def test_what_looks_like_a_secret_is_kept(vault: Path, epochal: Command) -> None:
    epochal("run", "vault.yaml", f"task.token={PLACES['override']}")
    (folder,) = run_folders(vault)
    expanded = load(folder / "config" / "expanded.yaml").root.to_public()["task"]
    assert (expanded["num_tokens"], expanded["tokenizer"]) == (77, "kept-look-alike")
    assert expanded["password"] == REDACTED
    assert expanded["address"] == "${env:VAULT_ADDRESS}"
    assert expanded["url"] == f"https://{REDACTED}@host/x"
    assert "num_tokens=77 kept-look-alike" in (folder / "logs" / "run.log").read_text()
    record = read_run(folder)
    (newest, *_) = record.provenance["task.password"]
    assert (newest["value"], newest["layer"]) == (REDACTED, "file")
    assert record.run["meta"] == {"classes": ["token", "secret"], "access_token": REDACTED}
    (note,) = [one for one in record.events if one["kind"] == "note"]
    assert (note["api_key"], note["num_tokens"]) == (REDACTED, 77)
    assert epochal("restore", "last", vault / "again").code == 0
    code = (vault / "again" / "shop" / "words.py").read_bytes()
    assert code == (vault / "shop" / "words.py").read_bytes()
    exec(compile(code, "words.py", "exec"), {})


GOING_ON = """
$BASE: config.yaml
task: {type: shop.safe.Safe, password: 'open: sesame'}
train: {for: 2ep}
checkpoint: {every: 1ep}
"""
SAFE = """
from shop.parts import Points

class Safe(Points):
    def __init__(self, *, password: str) -> None:
        super().__init__()
        assert password == "open: sesame", password
"""


@pytest.fixture
def safe(shop: Path) -> Path:
    write(shop / "shop" / "safe.py", SAFE)
    write(shop / "safe.yaml", GOING_ON)
    return shop


def test_run_with_a_secret_resumes_if_the_config_still_has_the_secret(
    safe: Path, epochal: Command
) -> None:
    assert epochal("run", "safe.yaml").code == 0
    (folder,) = run_folders(safe)
    assert "sesame" not in (folder / "config" / "expanded.yaml").read_text()
    log = (folder / "logs" / "run.log").read_text()
    assert "the record omits secrets, here task.password; resuming" in log
    assert epochal("resume", "last", "train.for=3ep").code == 0
    assert epochal("test", "last").code == 0
    assert [
        path for path in folder.rglob("*") if path.is_file() and b"sesame" in path.read_bytes()
    ] == []


def test_resume_asks_for_a_missing_secret(safe: Path, epochal: Command) -> None:
    assert epochal("run", "safe.yaml").code == 0
    (safe / "safe.yaml").unlink()
    asked = epochal("resume", "last", "train.for=3ep")
    assert asked.code == 78
    assert "task.password: was a secret, which records do not keep" in asked.err
    assert "give it again as task.password=VALUE, or write ${env:NAME}" in asked.err
    words = ("resume", "last", "train.for=3ep", "task.password='open: sesame'")
    assert epochal(*words).code == 0
    assert read_run("last", safe / "runs").summary.epoch == 3


def test_run_with_secrets_resumes_in_its_folder(safe: Path) -> None:
    first = ep.run(safe / "safe.yaml", overrides=["train.max_time=0.0001s"], device="cpu")
    assert first.dir is not None
    again = ep.run(safe / "safe.yaml", resume=first.dir, device="cpu")
    assert again.ok, again.message
    assert again.dir == first.dir
