"""Secrets that a run meets are in nothing that it leaves; what only looks like one is."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import epochal as ep
from canaries import TOKENS
from epochal.config import load
from epochal.config.scalar import REDACTED
from epochal.records import read_run
from small_project import Command, run_folders, write

if TYPE_CHECKING:
    from pathlib import Path

PLACES = """
config_password config_api_key config_nested config_list config_url config_signed config_comment
config_number_like config_text base_replaced other_variant override override_quoted desc
argv_option argv_equals environment_secret environment_reference
log_assignment log_json log_header log_cookie log_exception log_url event_name event_text
traceback_message traceback_cause traceback_source notice_value meta_value
code_literal code_config code_env_file code_key_file git_remote git_diff
"""
PLACES = {
    name: f"Zq{number:02}canary{number * 7919 % 100003:05}x"
    for number, name in enumerate(PLACES.split())
}

PARTS = """
import json
import logging
import os
from pathlib import Path

import epochal as ep
from shop.parts import Points

logger = logging.getLogger("shop.vault")
C = json.loads(Path(os.environ["CANARIES"]).read_text())

PASSWORD = "CODE_LITERAL"


class Vault(Points):
    def __init__(self, *, password: str, api_key: str, token: str, url: str, signed: str,
                 text: str, address: str, options: dict, num_tokens: int, tokenizer: str) -> None:
        super().__init__()
        self.meta = {"classes": ["token", "secret"], "access_token": C['meta_value']}
        assert password == C['config_password'], password
        assert token == C['override'], token
        assert address == C['environment_reference'], address
        assert num_tokens == 77


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
                words = f"refused: api_key={C['traceback_message']}"
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
  address: ${{env:VAULT_ADDRESS}}
  num_tokens: 77
  tokenizer: kept-look-alike
  options:
    secrets: {{door: {config_nested}}}
    cookies: [{config_list}]
    private_key: {config_number_like}
variants:
  other: {{task: {{password: {other_variant}}}}}
"""


@pytest.fixture
def vault(shop: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write(shop / "shop" / "vault.py", _with_literals(PARTS))
    secrets = shop.parent / "canaries.json"
    secrets.write_text(json.dumps({**PLACES, "tokens": list(TOKENS.values())}))
    monkeypatch.setenv("CANARIES", str(secrets))
    write(shop / "vault.yaml", CONFIG.format(**PLACES))
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
    for name in ("code_literal", "traceback_source"):
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
    """Every secret that some file below a folder holds."""
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


def test_a_run_with_a_secret_in_its_config_goes_on_while_the_config_has_it(
    safe: Path, epochal: Command
) -> None:
    assert epochal("run", "safe.yaml").code == 0
    (folder,) = run_folders(safe)
    assert "sesame" not in (folder / "config" / "expanded.yaml").read_text()
    assert "the record does not keep secrets" in (folder / "logs" / "run.log").read_text()
    assert epochal("resume", "last", "train.for=3ep").code == 0
    assert epochal("test", "last").code == 0
    assert [
        path for path in folder.rglob("*") if path.is_file() and b"sesame" in path.read_bytes()
    ] == []


def test_a_secret_that_nobody_has_any_more_is_asked_for(safe: Path, epochal: Command) -> None:
    assert epochal("run", "safe.yaml").code == 0
    (safe / "safe.yaml").unlink()
    asked = epochal("resume", "last", "train.for=3ep")
    assert asked.code == 78
    assert "task.password: was a secret, which records do not keep" in asked.err
    assert "give it again as task.password=VALUE, or write ${env:NAME}" in asked.err
    words = ("resume", "last", "train.for=3ep", "task.password='open: sesame'")
    assert epochal(*words).code == 0
    assert read_run("last", safe / "runs").summary.epoch == 3


def test_the_same_run_is_found_again_by_its_config(safe: Path) -> None:
    first = ep.run(safe / "safe.yaml", overrides=["train.max_time=0.0001s"], device="cpu")
    assert first.dir is not None
    again = ep.run(safe / "safe.yaml", resume=first.dir, device="cpu")
    assert again.ok, again.message
    assert again.dir == first.dir
