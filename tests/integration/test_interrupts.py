"""Ctrl-C and SIGTERM end a run in its own process, and its record says so."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

import forked
from epochal.records.folder.checkpoint_manifests import find_newest_checkpoint
from small_project import run_folders, write
from started import Start, starting

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SLOW = '''
"""Tasks that never end."""

from shop.parts import Points


class Endless(Points):
    """Is stuck in the first step."""

    def batch_loss(self, out, batch):
        print("stuck in a step", flush=True)
        while True:
            pass
        return super().batch_loss(out, batch)


class Unbuilt(Points):
    def __init__(self):
        print("stuck in a constructor", flush=True)
        while True:
            pass
'''


@pytest.fixture
def start() -> Iterator[Start]:
    with starting() as begin:
        yield begin


def status_of(shop: Path) -> dict[str, object]:
    (folder,) = run_folders(shop)
    status: dict[str, object] = json.loads((folder / "status.json").read_text())
    return status


def test_ctrl_c_ends_a_run_after_its_step_and_keeps_the_weights(shop: Path, start: Start) -> None:
    process = start("run", "config.yaml", "train.for=1000000ep")
    process.wait_for(" 2/1000000]")
    process.interrupt()
    code, errors = process.end()
    assert code == 130
    assert "run interrupted" in errors
    assert "stopped by Ctrl-C after" in errors
    assert "Traceback" not in errors
    status = status_of(shop)
    assert (status["status"], status["reason"]) == ("interrupted", "user_interrupt")
    assert int(str(status["step"])) >= 6
    assert status["ended"]
    assert list(shop.rglob("final.safetensors"))


def test_second_ctrl_c_ends_a_run_at_once(shop: Path, start: Start) -> None:
    write(shop / "shop" / "slow.py", SLOW)
    process = start("run", "config.yaml", "task.type=shop.slow.Endless")
    process.wait_for("stuck in a step")
    process.interrupt()
    process.wait_for("Ctrl-C again stops at once")
    process.interrupt()
    code, errors = process.end()
    assert code == 130
    assert "Traceback" not in errors
    assert status_of(shop)["status"] == "interrupted"


@pytest.mark.parametrize("words", [[], ["--no-file"]])
def test_ctrl_c_while_parts_are_built_is_recorded_too(
    shop: Path, start: Start, words: list[str]
) -> None:
    write(shop / "shop" / "slow.py", SLOW)
    process = start("run", "config.yaml", "task.type=shop.slow.Unbuilt", *words)
    process.wait_for("stuck in a constructor")
    process.interrupt()
    code, errors = process.end()
    assert code == 130
    assert "Traceback" not in errors
    if words:
        assert run_folders(shop) == []
    else:
        assert status_of(shop)["status"] == "interrupted"


def test_killed_run_is_shown_as_lost(shop: Path, start: Start) -> None:
    process = start("run", "config.yaml", "train.for=1000000ep")
    process.wait_for(" 2/1000000]")
    process.interrupt(signal.SIGKILL)
    process.end()
    assert status_of(shop)["status"] == "running"
    shown = forked.run("-m", "epochal", "runs", "--json")
    assert json.loads(shown.stdout)[0]["status"] == "lost"


def test_run_continues_when_its_output_pipe_is_closed(shop: Path) -> None:
    child = forked.Child("-m", "epochal", "run", "config.yaml", "--device", "cpu")
    child.stdout.readline()
    child.stdout.close()
    done = child.end()
    assert (done.returncode, done.stderr) == (0, "")
    assert status_of(shop)["status"] == "finished"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_preempted_run_ends_after_its_step_and_can_be_resumed(
    shop: Path, start: Start, number: int
) -> None:
    process = start("run", "config.yaml", "train.for=1000000ep")
    process.wait_for(" 2/1000000]")
    process.interrupt(number)
    code, errors = process.end()
    assert code == 75, errors
    assert "run preempted" in errors
    assert "preempted after" in errors
    assert "Traceback" not in errors
    status = status_of(shop)
    assert (status["status"], status["reason"]) == ("preempted", "preempted")
    assert status["ended"]
    assert not list(shop.rglob("final.safetensors"))
    (folder,) = run_folders(shop)
    newest, damage = find_newest_checkpoint(folder / "checkpoints")
    assert newest is not None
    assert (newest.step, damage) == (status["step"], [])
    assert "preempted" in newest.reason


def test_run_that_is_preempted_while_parts_are_built_ends_at_once(shop: Path, start: Start) -> None:
    write(shop / "shop" / "slow.py", SLOW)
    process = start("run", "config.yaml", "task.type=shop.slow.Unbuilt")
    process.wait_for("stuck in a constructor")
    process.interrupt(signal.SIGTERM)
    code, errors = process.end()
    assert code == 75, errors
    assert "preempted before the first step" in errors
    assert status_of(shop)["status"] == "preempted"
