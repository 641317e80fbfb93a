"""Tests of ``epochal completion``."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from epochal.cli.parser import VERBS

if TYPE_CHECKING:
    from pathlib import Path

    from small_project import Command

CONFIG = """
$BASE: [base.yaml, lost.yaml]
desc: |
  not_a_key: this is text
optim: {type: AdamW, betas: [0.9, 0.99], groups: [{match: "*.bias", lr: 0}]}   # a comment
model:
  "type": shop.parts.Net
  inner:
    width: 3
hooks:
- type: EarlyStopping
  patience: 3
- Console
variants:
  wide: {model.width: 512}
  slow:
    optim: {lr: 1e-4}
"""


def test_keys_of_a_config_and_its_bases_are_listed(epochal: Command, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "base.yaml").write_text("$BASE: config.yaml\nseed: 1\n")
    (tmp_path / "a.toml").write_text("seed = 1\n[train]\nfor = '1ep'\n")
    (tmp_path / "b.json").write_text('{"hooks": [{"type": "Console"}]}')
    (tmp_path / "broken.json").write_text("{")
    for file, wanted in {
        "config.yaml": "desc hooks.0.patience hooks.0.type hooks.1 model.inner.width model.type "
        "optim.betas.0 optim.betas.1 optim.groups.0.lr optim.groups.0.match optim.type seed",
        "a.toml": "seed train.for",
        "b.json": "hooks.0.type",
        "broken.json": "",
        "lost.yaml": "",
    }.items():
        done = epochal("completion", "keys", "--", "run", tmp_path / file, "--device", "cpu")
        assert (done.code, done.out.split()) == (0, wanted.split()), file


def test_variants_and_runs_are_listed(
    epochal: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    done = epochal("completion", "variants", "--", "run", tmp_path / "config.yaml")
    assert done.out.split() == ["all", "base,all", "slow", "wide"]
    runs = tmp_path / "runs"
    (runs / "shop/tag/20260101-000000-abcd/checkpoints").mkdir(parents=True)
    (runs / ".epochal").mkdir()
    done = epochal("completion", "runs", "--", "show", "--runs-dir", runs)
    assert done.out.split() == ["20260101-000000-abcd", "last", "tag"]
    monkeypatch.chdir(tmp_path / "runs")
    (tmp_path / "epochal.toml").write_text('runs_dir = "runs/shop"')
    assert epochal("completion", "runs", "--", "show").out == done.out
    (tmp_path / "epochal.toml").write_text("broken")
    assert epochal("completion", "runs", "--", "show").out.split() == ["last"]
    assert epochal("completion", "runs").out.split() == ["last"]
    done = epochal("completion", "runs", "--", "show", f"--runs-dir={tmp_path / 'none'}")
    assert done.out.split() == ["last"]


def test_words_that_a_shell_would_execute_are_not_offered(
    epochal: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    hostile = (
        "$(touch x)",
        "`touch x`",
        "a;touch x",
        "\x1b[2J",
        "a b",
        "~",
        "*",
        "$HOME",
        "'",
        "\n",
    )
    for name in (*hostile, "wide.2"):
        (tmp_path / "runs" / "p" / name / "20261115-031200-a3f9").mkdir(parents=True)
    config = dict.fromkeys(hostile, 1) | {"seed": 1, "variants": {key: {} for key in hostile}}
    (tmp_path / "a.json").write_text(json.dumps(config))
    table = {
        "runs": "20261115-031200-a3f9\nlast\nwide.2\n",
        "keys": "seed\n",
        "variants": "all\nbase,all\n",
    }
    for what, expected in table.items():
        assert epochal("completion", what, "--", "show", "a.json").out == expected, what


def test_scripts_know_every_verb_and_the_keys_of_sections(epochal: Command) -> None:
    script = epochal("completion", "fish").out
    assert set(re.findall(r"-eq 1' -a (\S+)", script)) == set(VERBS)
    assert "train.eval_every=" in script
    assert "optim.clip=" in script
    assert "typed_words" not in script


# What each line offers; a function stands in for the command that lists keys and runs.
LINES = {
    "epochal sch": {"schema"},
    "epochal run c.yaml optim.l": {"optim.lr=", "optim.layer_decay="},
    "epochal run c.yaml --vari": {"--variant"},
    "epochal run c.yaml --variant w": {"wide"},
    "epochal show 2026": {"20260101-000000-abcd"},
    "epochal runs --format c": {"csv"},
    "epochal index ver": {"verify"},
    "epochal run c": {"c.yaml", "checkpoint.dir=", "checkpoint.every="},
}
BASH = """
compopt() { :; }
epochal() {
    case $2 in
        keys) echo optim.lr ;; variants) echo wide ;; runs) echo 20260101-000000-abcd ;;
    esac
}
. ./script
ask() {
    COMP_WORDS=($1); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _epochal epochal "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
    echo ${COMPREPLY[@]}
}
"""


def run_shell(shell: str, text: str, folder: Path) -> list[set[str]]:
    done = subprocess.run(
        [shell, "-c", text], cwd=folder, capture_output=True, text=True, check=True
    )
    assert not done.stderr
    return [set(line.split()) for line in done.stdout.splitlines()]


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_bash_completes_verbs_options_keys_and_runs(epochal: Command, tmp_path: Path) -> None:
    (tmp_path / "script").write_text(epochal("completion", "bash").out)
    (tmp_path / "c.yaml").touch()
    text = BASH + "\n".join(f"ask '{one}'" for one in LINES)
    for line, offered in zip(LINES, run_shell("bash", text, tmp_path), strict=True):
        assert LINES[line] <= offered, line
        assert all(word.startswith(line.split()[-1]) for word in offered), line


@pytest.mark.skipif(not shutil.which("fish"), reason="needs fish")
def test_fish_completes_verbs_options_keys_and_runs(epochal: Command, tmp_path: Path) -> None:
    (tmp_path / "script").write_text(epochal("completion", "fish").out)
    (tmp_path / "c.yaml").touch()
    fake = """function epochal
        switch $argv[2]
            case keys; echo optim.lr
            case variants; echo wide
            case runs; echo 20260101-000000-abcd
        end
    end\nsource ./script\n"""
    asks = "\n".join(f"echo (complete -C '{one}' | cut -f1)" for one in LINES)
    for line, offered in zip(LINES, run_shell("fish", fake + asks, tmp_path), strict=True):
        assert LINES[line] <= offered, line


@pytest.mark.skipif(not shutil.which("zsh"), reason="needs zsh")
def test_the_script_of_zsh_can_be_parsed(epochal: Command, tmp_path: Path) -> None:
    (tmp_path / "script").write_text(epochal("completion", "zsh").out)
    assert (tmp_path / "script").read_text().startswith("#compdef epochal\n")
    run_shell("zsh", "zsh -n script", tmp_path)
