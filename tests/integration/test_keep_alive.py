"""Supervised runs in real processes: killed, preempted, and without their supervisor."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import pytest

from small_project import run_folders, write, write_shop
from started import Start, starting

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOOKS = '''
"""Hooks that end their process once, after a checkpoint was written."""

import os
import signal
import time
from pathlib import Path

import epochal as ep


class Once(ep.Hook):
    """Kills its own process.

    Args:
        parent: Whether the supervisor is killed instead.
    """

    def __init__(self, *, parent: bool = False) -> None:
        self.parent = parent

    def checkpoint_saved(self, run, path):
        flag = Path("flag")
        if not flag.exists():
            flag.write_text(str(run.step))
            os.kill(os.getppid() if self.parent else os.getpid(), signal.SIGKILL)
            while not run.stop_reason:  # until it notices that its parent is dead
                time.sleep(0.01)
'''
STALLS = """
import ctypes
import threading
import time
from pathlib import Path

import epochal as ep


class Stall(ep.Hook):
    \"\"\"Hangs for ever, once.

    Args:
        blocks: Whether in C code that never releases the GIL.
    \"\"\"

    def __init__(self, *, blocks: bool = False) -> None:
        self.blocks = blocks

    def step_end(self, run):
        flag = Path("stalled")
        if run.step == 8 and not flag.exists():
            flag.touch()
            while not (run.dir / "checkpoints" / "last").exists():
                time.sleep(0.01)  # a blocked GIL also blocks the thread that saves
            if self.blocks:
                ctypes.PyDLL(None).pause()
            threading.Event().wait()
"""
WORDS = ("run", "config.yaml", "--keep-alive", "checkpoint.every=1ep")


@pytest.fixture
def start(shop: Path) -> Iterator[Start]:
    write(shop / "shop" / "hooks.py", HOOKS)
    with starting() as begin:
        yield begin


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def once(**options: Any) -> str:
    return "hooks=" + json.dumps([{"type": "shop.hooks.Once", **options}])


@pytest.mark.long
def test_supervisor_finishes_a_killed_run(shop: Path, start: Start) -> None:
    code, errors = start(*WORDS, "train.for=3ep", once()).end()
    assert code == 0, errors
    (folder,) = run_folders(shop)
    status, run = read(folder / "status.json"), read(folder / "run.json")
    assert (status["status"], status["step"]) == ("finished", 18)
    assert [one["cause"] for one in run["attempts"]] == ["started", "retried"]
    result = read(folder / "result.json")
    assert (status["killed"], result["killed"]) == (1, 1)
    assert result["seconds"] == sum(result["times"].values())
    assert result["times"]["start-up/imports"] > 0
    assert '"kind":"restart"' in (folder / "events.jsonl").read_text()
    assert "keep-alive: the run was killed by SIGKILL at step" in errors
    assert not list((shop / ".epochal" / "keep-alive").iterdir())


def test_run_saves_when_its_supervisor_is_killed_and_can_be_resumed(
    shop: Path, start: Start
) -> None:
    words = (*WORDS, "train.for=4ep", once(parent=True))
    assert start(*words, forks=True).end()[0] == -signal.SIGKILL
    # The pipes are closed, so the run has ended too.
    (folder,) = run_folders(shop)
    saved = read(folder / "status.json")
    assert saved["status"] == "preempted"
    code, errors = start(*words, forks=True).end()
    assert code == 0, errors
    assert f"continuing {folder.relative_to(shop)}" in errors
    assert run_folders(shop) == [folder]
    attempts = read(folder / "run.json")["attempts"]
    assert attempts[1]["step"] == saved["step"]  # no step was lost
    assert attempts[1]["cause"] == "requeued"
    result = read(folder / "result.json")
    assert (result["killed"], result["redone_seconds"]) == (0, 0)
    assert result["times"]["start-up/building"] > saved["times"]["start-up/building"] > 0


def test_supervisor_restarts_a_run_that_hangs(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = {}
    for blocks in (False, True):
        shop = write_shop(tmp_path / str(blocks))
        write(shop / "shop" / "stalls.py", STALLS)
        monkeypatch.chdir(shop)
        hooks = "hooks=" + json.dumps([{"type": "shop.stalls.Stall", "blocks": blocks}])
        words = (*WORDS, "train.for=2ep", "engine.hang_after=2s", hooks)
        started[shop] = start(*words, forks=True)
    for shop, process in started.items():
        code, errors = process.end()
        assert code == 0, errors
        assert "keep-alive: the run hung at step" in errors
        (folder,) = run_folders(shop)
        assert read(folder / "status.json")["status"] == "finished"
        attempts = read(folder / "run.json")["attempts"]
        assert [one["cause"] for one in attempts] == ["started", "retried"]
        assert "stalls.py" in (folder / "logs" / "stacks.txt").read_text()
        mails = (shop / "runs" / ".epochal" / "mail").rglob("*.json")
        assert "stalled" in " ".join(path.read_text() for path in mails)
