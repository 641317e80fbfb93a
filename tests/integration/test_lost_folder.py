"""A run whose folder is moved, deleted or taken ends with 73, and writes nothing more."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from epochal.records.find import read_run
from forked import Child
from small_project import run_folders, write

if TYPE_CHECKING:
    from collections.abc import Callable

HOOKS = '''
"""A hook that waits until the run is told to stop."""

import threading
from pathlib import Path

import epochal as ep


class Waiting(ep.Hook):
    """Reports that it waits and that the run stops; continues when the test has opened the gate."""

    def step_end(self, run):
        if run.step == 8:
            while not (run.dir / "checkpoints" / "last").exists():
                threading.Event().wait(0.01)  # a thread writes the checkpoint of step 6
            print("waiting", flush=True)
            while not run.stop_reason:
                threading.Event().wait(0.01)
            print("stopping", flush=True)
            Path("gate").read_text()
'''
MAIN = """
import sys
from epochal.cli import main
from epochal.records.layout import lease
lease.writing_heartbeat.__wrapped__.__kwdefaults__["seconds"] = 0.05
sys.exit(main(sys.argv[1:]))
"""


def move(folder: Path) -> Path:
    return folder.rename(folder.parents[1] / folder.name)


def delete(folder: Path) -> Path:
    shutil.rmtree(folder)
    return folder


def take(folder: Path) -> Path:
    """Let another process own the folder, as if it had found no sign of life."""
    owner = {"pid": 7, "host": "elsewhere", "process": "another-boot:1"}
    (folder / "other.json").write_text(json.dumps(owner))
    (folder / "other.json").replace(folder / "lease.json")
    return folder


def digests(folder: Path) -> dict[str, str]:
    """The content of every file below a folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize(
    ("act", "why"),
    [
        (move, "the folder of the run was deleted or moved"),
        (delete, "the folder of the run was deleted or moved"),
        (take, "process 7 on elsewhere took over the run"),
    ],
)
def test_a_run_without_its_folder_ends_and_writes_nothing_more(
    shop: Path, act: Callable[[Path], Path], why: str
) -> None:
    write(shop / "shop" / "hooks.py", HOOKS)
    os.mkfifo(shop / "gate")
    words = ("run", "config.yaml", "train.for=20ep", "log.record_every=1st")
    child = Child("-c", MAIN, *words, "hooks=[{type: shop.hooks.Waiting}]", "--device", "cpu")
    assert any("waiting" in line for line in child.stdout)
    (folder,) = run_folders(shop)
    now = act(folder)
    assert any("stopping" in line for line in child.stdout)
    before = digests(shop / "runs")
    (shop / "gate").write_text("go")
    done = child.end()
    assert done.returncode == 73, done.stderr
    assert "run failed: LeaseLostError" in done.stderr
    assert why in " ".join(done.stderr.replace("│", " ").split())
    after = digests(shop / "runs")
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    # Its mail is its own, and so is the event file, whose name no other process has.
    assert not {name for name in changed if not {".epochal", "tensorboard"} & {*Path(name).parts}}
    assert folder.exists() is (act is take)
    if act is move:
        assert read_run(now).summary.status == "lost"
