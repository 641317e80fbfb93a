"""Tests of epochal.records.layout.lease."""

from __future__ import annotations

import errno
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from epochal.errors import LeaseLostError, RecordError
from epochal.records.layout.lease import LEASE_FILE, Lease, holding_lease
from epochal.records.layout.process import host_name, process_token

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def write_owner(folder: Path, **owner: object) -> Path:
    path = folder / LEASE_FILE
    path.write_text(json.dumps({"host": host_name(), "pid": os.getpid()} | owner))
    return path


def test_a_lease_is_held_during_the_block(tmp_path: Path) -> None:
    with suppress(KeyError), holding_lease(tmp_path):
        owner = json.loads((tmp_path / LEASE_FILE).read_text())
        assert (owner["host"], owner["pid"]) == (host_name(), os.getpid())
        raise KeyError
    assert not (tmp_path / LEASE_FILE).exists()


def test_a_second_lease_is_refused(tmp_path: Path) -> None:
    with (
        holding_lease(tmp_path),
        pytest.raises(RecordError, match=rf"process {os.getpid()} on .* is working on this run"),
        holding_lease(tmp_path),
    ):
        pass
    assert not (tmp_path / LEASE_FILE).exists()


def test_the_living_owner_is_named(tmp_path: Path) -> None:
    parent = os.getppid()
    path = write_owner(tmp_path, pid=parent, process=process_token(parent), time="noon")
    with pytest.raises(RecordError, match=f"process {parent} on .* since noon\n  wait for its end"):
        Lease(tmp_path)
    assert json.loads(path.read_text())["pid"] == parent


def test_the_lease_of_a_killed_process_is_taken(tmp_path: Path) -> None:
    code = "import os, sys; from pathlib import Path\n"
    code += "from epochal.records.layout.lease import Lease; Lease(Path(sys.argv[1])); os._exit(9)"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert done.returncode == 9
    before = json.loads((tmp_path / LEASE_FILE).read_text())["pid"]
    with holding_lease(tmp_path):
        assert json.loads((tmp_path / LEASE_FILE).read_text())["pid"] != before


def test_a_reused_pid_does_not_hold_a_lease(tmp_path: Path) -> None:
    boot, _, start = process_token(os.getpid()).partition(":")
    write_owner(tmp_path, process=f"{boot}:{int(start) - 1}")
    with holding_lease(tmp_path):
        pass


def test_a_lease_without_a_lock_is_free_although_its_process_lives(tmp_path: Path) -> None:
    lease = Lease(tmp_path)
    data = (tmp_path / LEASE_FILE).read_bytes()
    lease.release()
    (tmp_path / LEASE_FILE).write_bytes(data)
    with holding_lease(tmp_path):
        pass


def test_a_damaged_lease_is_ignored(tmp_path: Path) -> None:
    for text in ["", "[]", "{", '{"host": 3}']:
        (tmp_path / LEASE_FILE).write_text(text)
        with holding_lease(tmp_path):
            pass


def test_the_lease_of_another_machine_ends_after_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_owner(tmp_path, host="elsewhere", pid=7, process="another-boot:1")
    with pytest.raises(RecordError, match=f"if that process has certainly ended, delete {path}"):
        Lease(tmp_path)
    os.utime(path, (1e9, 1e9))
    Lease(tmp_path).release()
    write_owner(tmp_path, host="elsewhere", pid=7, process="another-boot:1")
    os.utime(path, (1e9, 1e9))
    (tmp_path / "status.json").touch()
    with pytest.raises(RecordError, match="process 7 on elsewhere"):
        Lease(tmp_path)


def test_a_lost_lease_is_not_released(tmp_path: Path) -> None:
    mine = Lease(tmp_path)
    path = write_owner(tmp_path, host="elsewhere")
    mine.release()
    assert path.exists()


def test_file_systems_without_locks_are_supported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with holding_lease(tmp_path):
        assert (tmp_path / LEASE_FILE).exists()


def test_a_lost_lease_is_noticed_once_and_stays_lost(tmp_path: Path) -> None:
    def delete(folder: Path) -> None:
        (folder / LEASE_FILE).unlink()

    def take(folder: Path) -> None:
        write_owner(folder, pid=7, host="elsewhere")

    def move(folder: Path) -> None:
        folder.rename(folder.with_name("moved"))

    def leave_link(folder: Path) -> None:  # moved to another disk, and still reachable
        folder.rename(folder.with_name("disk"))
        folder.symlink_to("disk")

    table: list[tuple[Callable[[Path], object], str]] = [
        (delete, "lease.json was deleted"),
        (take, "process 7 on elsewhere took over the run"),
        (move, "the folder of the run was deleted or moved"),
        (shutil.rmtree, "the folder of the run was deleted or moved"),
        (leave_link, ""),
    ]
    for act, loss in table:
        folder = tmp_path / act.__name__
        folder.mkdir()
        (folder / "status.json").touch()
        lease, heard = Lease(folder), []
        lease.on_loss = heard.append
        assert lease.is_held(), act
        act(folder)
        assert [lease.is_held(), lease.is_held()] == [not loss] * 2, act
        assert heard == [loss] * bool(loss), act
        if loss:
            with pytest.raises(LeaseLostError, match=loss):
                lease.require()
        lease.release()


def test_a_file_system_that_is_away_takes_no_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> bytes:
        raise OSError(errno.ESTALE, "stale file handle")

    with holding_lease(tmp_path) as lease, monkeypatch.context() as patch:
        patch.setattr(pathlib.Path, "read_bytes", fail)
        assert lease.is_held()


def test_a_forked_process_neither_keeps_nor_releases_the_lease(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        lease = Lease(tmp_path)
        child = os.fork()
        if child == 0:
            lease.release()
            theirs.send(b"!")
            theirs.recv(1)  # lives until the test allows its end
            os._exit(0)
        ours.recv(1)
        assert lease.is_held()
        lease._file.close()  # as if this process had died
        try:
            with holding_lease(tmp_path):
                pass
        finally:
            ours.send(b"!")
            os.waitpid(child, 0)


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="No such file"):
        Lease(tmp_path / "gone")
