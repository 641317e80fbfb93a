"""Tests of epochal.records.layout.alive."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from epochal import durable
from epochal.records.find import read_run
from epochal.records.layout import alive
from epochal.records.layout.alive import (
    BEAT_SECONDS,
    HEARTBEAT_FILE,
    is_heartbeat_stale,
    writing_heartbeat,
)
from epochal.records.layout.process import host_name, process_token

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def age(folder: Path, seconds: float) -> None:
    """Let the last beat be so many seconds ago."""
    path = folder / HEARTBEAT_FILE
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))


def test_a_thread_beats_during_the_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beats, utime = threading.Semaphore(0), os.utime

    def count(path: Path, *times: Any) -> None:
        utime(path, *times)
        beats.release()

    monkeypatch.setattr(alive.os, "utime", count)
    with writing_heartbeat(tmp_path, seconds=0.001):
        assert [beats.acquire(timeout=30) for _ in range(3)] == [True] * 3
    assert "epochal-heartbeat" not in {thread.name for thread in threading.enumerate()}


def test_the_heartbeat_names_its_process(tmp_path: Path) -> None:
    with writing_heartbeat(tmp_path):
        found = durable.decode_json((tmp_path / HEARTBEAT_FILE).read_bytes())
    assert found == {"host": host_name(), "pid": os.getpid(), "beat_seconds": BEAT_SECONDS}


def test_a_full_disk_does_not_disturb_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(alive.durable, "write_json", refuse)
    with writing_heartbeat(tmp_path / "nowhere"):
        pass


def test_a_heartbeat_is_stale_after_two_beats(tmp_path: Path) -> None:
    assert not is_heartbeat_stale(tmp_path)  # there is none
    with writing_heartbeat(tmp_path, seconds=100):
        assert not is_heartbeat_stale(tmp_path)
        age(tmp_path, 150)
        assert not is_heartbeat_stale(tmp_path)
        age(tmp_path, 60)
        assert is_heartbeat_stale(tmp_path)


def test_a_damaged_heartbeat_has_the_default_period(tmp_path: Path) -> None:
    for text in ["", "[]", "{}", '{"beat_seconds": "often"}']:
        (tmp_path / HEARTBEAT_FILE).write_text(text)
        assert not is_heartbeat_stale(tmp_path)
        age(tmp_path, 2 * BEAT_SECONDS + 9)
        assert is_heartbeat_stale(tmp_path) is bool(text)


def write_status(folder: Path, **fields: object) -> None:
    durable.write_json(folder / "run.json", {})
    durable.write_json(folder / "status.json", {"status": "running", "step": 3, **fields})


def test_a_run_of_another_machine_is_lost_without_heartbeat(tmp_path: Path) -> None:
    write_status(tmp_path, pid=1, host="elsewhere", process="x")
    assert read_run(tmp_path).summary.status == "running"
    with writing_heartbeat(tmp_path):
        pass
    assert read_run(tmp_path).summary.status == "running"
    age(tmp_path, 2 * BEAT_SECONDS + 9)
    assert read_run(tmp_path).summary.status == "lost"


def test_a_run_of_this_machine_is_lost_with_its_process(tmp_path: Path) -> None:
    token = process_token(os.getpid())
    with writing_heartbeat(tmp_path):
        pass
    age(tmp_path, 1000)
    write_status(tmp_path, pid=os.getpid(), host=host_name(), process=token)
    assert read_run(tmp_path).summary.status == "running"
    write_status(tmp_path, pid=os.getpid(), host=host_name(), process="another process")
    assert read_run(tmp_path).summary.status == "lost"
