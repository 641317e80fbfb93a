"""Tests of epochal.records.layout.lease."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any

from epochal import durable
from epochal.records.find import read_run
from epochal.records.layout import lease as lease_module
from epochal.records.layout.lease import (
    BEAT_SECONDS,
    HEARTBEAT_FILE,
    STALE_AFTER_BEATS,
    holding_lease,
    is_owner_alive,
    writing_heartbeat,
)
from epochal.records.layout.process import host_name, process_token
from epochal.records.layout.stop_request import write_stop_request

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

ELSEWHERE = {"pid": 7, "host": "elsewhere", "process": "another-boot:1"}


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

    monkeypatch.setattr(lease_module.os, "utime", count)
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

    monkeypatch.setattr(lease_module.durable, "write_json", refuse)
    with writing_heartbeat(tmp_path / "nowhere"):
        pass


def test_a_heartbeat_ends_when_another_process_owns_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beats: list[Any] = []
    asked = threading.Event()

    def is_owner() -> bool:
        asked.set()
        return False

    monkeypatch.setattr(lease_module.os, "utime", lambda *given: beats.append(given))
    with writing_heartbeat(tmp_path, seconds=0.001, is_owner=is_owner):
        assert asked.wait(30)
    assert not beats


def test_requests_to_stop_are_looked_for_more_often_than_a_heartbeat_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beats, asked = list[object](), threading.Event()

    def is_owner() -> bool:
        asked.set()
        return True

    monkeypatch.setattr(lease_module.os, "utime", lambda *given: beats.append(given))
    monkeypatch.setattr(lease_module, "WATCH_SECONDS", 0.001)
    with writing_heartbeat(tmp_path, seconds=1000, is_owner=is_owner):
        assert asked.wait(30)
    assert not beats


def test_a_process_elsewhere_is_alive_for_four_beats(tmp_path: Path) -> None:
    with writing_heartbeat(tmp_path, seconds=100):
        assert is_owner_alive(tmp_path, ELSEWHERE)
        age(tmp_path, 390)
        assert is_owner_alive(tmp_path, ELSEWHERE)
        age(tmp_path, 20)
        assert not is_owner_alive(tmp_path, ELSEWHERE)
        age(tmp_path, -86400)  # a clock was set back: it may be alive
        assert is_owner_alive(tmp_path, ELSEWHERE)


def test_a_damaged_heartbeat_has_the_default_period(tmp_path: Path) -> None:
    for text in ["", "[]", "{}", '{"beat_seconds": "often"}']:
        (tmp_path / HEARTBEAT_FILE).write_text(text)
        assert is_owner_alive(tmp_path, ELSEWHERE), text
        age(tmp_path, STALE_AFTER_BEATS * BEAT_SECONDS + 9)
        assert not is_owner_alive(tmp_path, ELSEWHERE), text


def write_status(folder: Path, **fields: object) -> None:
    durable.write_json(folder / "run.json", {})
    durable.write_json(folder / "status.json", {"status": "running", "step": 3, **fields})


def test_a_run_of_another_machine_is_lost_without_signs_of_life(tmp_path: Path) -> None:
    write_status(tmp_path, **ELSEWHERE)
    assert read_run(tmp_path).summary.status == "running"
    os.utime(tmp_path / "status.json", (1e9, 1e9))
    with writing_heartbeat(tmp_path):
        assert read_run(tmp_path).summary.status == "running"
    age(tmp_path, STALE_AFTER_BEATS * BEAT_SECONDS + 9)
    assert read_run(tmp_path).summary.status == "lost"


def test_a_run_of_this_machine_is_lost_with_its_process(tmp_path: Path) -> None:
    mine = process_token(os.getpid())
    boot, _, start = mine.partition(":")
    with writing_heartbeat(tmp_path):
        pass
    age(tmp_path, 1000)
    for token, state in [(mine, "running"), (f"{boot}:{int(start) - 1}", "lost")]:
        write_status(tmp_path, pid=os.getpid(), host=host_name(), process=token)
        assert read_run(tmp_path).summary.status == state, token


def test_a_reboot_ends_a_run_whose_heartbeat_was_fresh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_status(tmp_path, pid=os.getpid(), host=host_name(), process="another-boot:1")
    assert read_run(tmp_path).summary.status == "running"  # two machines may have one name
    monkeypatch.setattr(lease_module, "_boot_time", lambda: time.time() + 1)
    assert read_run(tmp_path).summary.status == "lost"


def test_the_heartbeat_notices_a_request_to_stop_once(tmp_path: Path) -> None:
    seen, reasons = threading.Event(), []
    with holding_lease(tmp_path) as lease:
        (tmp_path / "status.json").write_text("{}")

        def note(reason: str) -> None:
            reasons.append(reason)
            seen.set()

        lease.on_stop_request = note
        assert lease.watch()
        assert reasons == []
        write_stop_request(tmp_path, "pruned (median)")
        with writing_heartbeat(tmp_path, seconds=0.001, is_owner=lease.watch):
            assert seen.wait(30)
        lease.watch()
    assert reasons == ["pruned (median)"]
