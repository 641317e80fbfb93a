"""The start of the command in a real process: imports, Ctrl-C, ASCII terminals."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import forked
from small_project import run_folders

ROOT = Path(__file__).parents[2]
EPOCHAL = [sys.executable, "-m", "epochal"]
PRESS = """
import os, signal, sys

class Press:
    '''Presses Ctrl-C when a module is about to be imported.'''

    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Press())
from epochal.cli import main
sys.exit(main(sys.argv[2:]))
"""


def test_check_imports_neither_torch_nor_the_users_code() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "epochal", "check", "digits.yaml"],
        cwd=ROOT / "examples" / "digits",
        capture_output=True,
        text=True,
        check=True,
    )
    imported = set(re.findall(r"^import time:.*\| +(\S+)$", done.stderr, re.MULTILINE))
    assert "epochal.check" in imported
    tops = {name.partition(".")[0] for name in imported}
    assert not {"torch", "numpy", "digits", "rich"} & tops
    assert "no mistakes" in done.stdout


def test_pool_and_queue_do_not_import_torch(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EPOCHAL_LEASES_DIR", str(tmp_path / "leases" / "here"))
    for words in (
        ("run", "config.yaml", "config.yaml", "--devices", "cpu", "--dry-run"),
        ("queue", "add", "config.yaml"),
        ("queue", "work", "--devices", "cpu", "--dry-run"),
        ("queue", "list"),
    ):
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "epochal", *words],
            capture_output=True,
            text=True,
            check=True,
        )
        imported = set(re.findall(r"^import time:.*\| +(\S+)$", done.stderr, re.MULTILINE))
        assert "epochal.launch" in imported, words
        assert not {"torch", "shop"} & imported, words


@pytest.mark.parametrize("module", ["epochal.cli.parser", "ruamel.yaml", "torch.nn", "shop.parts"])
def test_ctrl_c_while_starting_ends_quietly(shop: Path, module: str) -> None:
    words = ["-c", PRESS, module, "run", "config.yaml", "--device", "cpu", "train.for=100000ep"]
    if module == "shop.parts":  # torch is imported before it
        done = forked.run(*words)
    else:
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert "Traceback" not in done.stderr
    assert "Epoch" not in done.stdout
    for folder in run_folders(shop):
        assert json.loads((folder / "status.json").read_text())["status"] == "interrupted"


def test_ascii_terminal_is_supported(shop: Path) -> None:
    environment = os.environ | {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}

    def epochal(*words: str) -> str:
        done = subprocess.run([*EPOCHAL, *words], env=environment, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b""), done.stderr.decode()
        return done.stdout.decode()

    (shop / "config.yaml").rename(shop / "größe.yaml")
    words = ("--name", "süß", "--desc", "wörd", "extra.word=möwe")
    out = epochal("run", "größe.yaml", "--fast", "--device", "cpu", *words)
    assert "s??" in out
    (folder,) = run_folders(shop)
    facts = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    assert (facts["tag"], facts["desc"], facts["config_path"]) == ("süß", "wörd", "größe.yaml")
    assert "möwe" in (folder / "config" / "expanded.yaml").read_text(encoding="utf-8")
    assert "# süß\n\nwörd\n" in (folder / "README.md").read_text(encoding="utf-8")
    assert "s??" in epochal("runs")
