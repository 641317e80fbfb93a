"""The process of the crash tests writes checkpoints as a run does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from epochal.doctor import checkpoint_writer
from epochal.doctor.checkpoint_writer import (
    NUM_KEPT,
    write_checkpoint,
    write_forever,
    write_until_full,
)
from epochal.records.folder.checkpoint_manifests import find_checkpoints, find_newest_checkpoint

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def usual_signal() -> None:
    before = signal.getsignal(signal.SIGXFSZ)
    yield  # type: ignore[misc]  # a fixture
    signal.signal(signal.SIGXFSZ, before)


def test_a_checkpoint_is_found_as_one_of_a_run(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 7, b"weights")
    newest, damage = find_newest_checkpoint(tmp_path)
    assert newest is not None
    assert (newest.step, damage) == (7, [])


def test_a_step_is_printed_after_its_checkpoint_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[bytes] = []

    def say(_: int, line: bytes) -> int:
        assert find_checkpoints(tmp_path)[-1].step == int(line)
        said.append(line)
        if len(said) == 5:
            raise KeyboardInterrupt
        return len(line)

    (tmp_path / ".staging-step-0-1").mkdir()
    monkeypatch.setattr(checkpoint_writer.sys.stdout, "fileno", lambda: 1, raising=False)
    monkeypatch.setattr(checkpoint_writer.os, "write", _only(1, say))
    with pytest.raises(KeyboardInterrupt):
        write_forever(tmp_path, 10, 3)
    assert said == [b"3\n", b"4\n", b"5\n", b"6\n", b"7\n"]
    assert [one.step for one in find_checkpoints(tmp_path)] == [5, 6, 7][-NUM_KEPT - 1 :]
    assert not list(tmp_path.glob(".staging*"))


def _only(descriptor: int, say: object) -> object:
    write = os.write
    return lambda file, data: say(file, data) if file == descriptor else write(file, data)  # type: ignore[operator]  # a function


def test_a_save_without_space_damages_nothing(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "epochal.doctor.checkpoint_writer",
        str(tmp_path),
        "5000",
        "limits",
    ]
    done = subprocess.run([*command, "0", "1", "4000"], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"
    assert [path.name for path in tmp_path.iterdir()] == ["step-0"]


def test_a_limit_that_no_file_reaches_is_reported(tmp_path: Path) -> None:
    assert write_until_full(tmp_path, 100, [10**7]) == [10**7]
