"""Tests of epochal.records.layout.alive."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from epochal.errors import RecordError
from epochal.records.layout.alive import LEASE_FILE, Lease, holding_lease
from epochal.records.layout.process import host_name, process_token

if TYPE_CHECKING:
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
        pytest.raises(RecordError, match=rf"process {os.getpid()} on .* works on this run"),
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
    code += "from epochal.records.layout.alive import Lease; Lease(Path(sys.argv[1])); os._exit(9)"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert done.returncode == 9
    before = json.loads((tmp_path / LEASE_FILE).read_text())["pid"]
    with holding_lease(tmp_path):
        assert json.loads((tmp_path / LEASE_FILE).read_text())["pid"] != before


def test_a_reused_pid_does_not_hold_a_lease(tmp_path: Path) -> None:
    write_owner(tmp_path, process="another-boot:1")
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
    path = write_owner(tmp_path, host="elsewhere", pid=7)
    with pytest.raises(RecordError, match=f"if it is surely gone, delete {path}"):
        Lease(tmp_path)
    os.utime(path, (1e9, 1e9))
    Lease(tmp_path).release()
    write_owner(tmp_path, host="elsewhere", pid=7)
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


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="No such file"):
        Lease(tmp_path / "gone")
