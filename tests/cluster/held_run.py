"""A run that waits after a checkpoint until it is stopped, so that tests can take its node away."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from small_project import write

if TYPE_CHECKING:
    from pathlib import Path

HOOKS = '''
"""A hook that holds its run after a checkpoint, until the run is stopped or killed."""

import os
import select
from pathlib import Path

import epochal as ep


class Hold(ep.Hook):
    def checkpoint_saved(self, run, path):
        flag = Path("held")
        if run.is_main and not flag.exists():
            flag.with_suffix(".new").write_text(os.environ.get("SHOP_NODE", str(os.getppid())))
            flag.with_suffix(".new").rename(flag)
            listener = run.world.listener  # None in a run of one process
            while not (run.stop_reason or (listener is not None and listener.stop_kind)):
                select.select([], [], [], 0.05)
'''
WORDS = (
    "config.yaml",
    "checkpoint.every=1ep",
    "train.for=3ep",
    'hooks=[{"type": "shop.hooks.Hold"}]',
)


def add_hook(shop: Path) -> None:
    write(shop / "shop" / "hooks.py", HOOKS)


def start(shop: Path, *words: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "epochal", *words],
        cwd=shop,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(shop: Path, *words: str, **variables: str) -> str:
    child = start(shop, *words, **variables)
    out, _ = child.communicate()
    assert child.returncode == 0, out
    return out


def wait_until_held(shop: Path, child: subprocess.Popen[str]) -> str:
    """Who holds the run: the name of the node, or the process that started it."""
    while not (shop / "held").exists():
        assert child.poll() is None, child.communicate()[0]
        select.select([], [], [], 0.05)
    return (shop / "held").read_text()


def weights(folder: Path) -> bytes:
    return (folder / "checkpoints" / "final.safetensors").read_bytes()


def attempts(folder: Path) -> list[Any]:
    return [one["attempt"] for one in json.loads((folder / "run.json").read_text())["attempts"]]
