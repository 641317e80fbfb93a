"""Tests of the right to work on the folder of a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from epochal.errors import RecordError
from epochal.records.alive.lease import LEASE_FILE, Lease, holding_lease
from epochal.records.layout.process import host_name, process_token

if TYPE_CHECKING:
    from pathlib import Path


def write_owner(folder: Path, **owner: object) -> Path:
    path = folder / LEASE_FILE
    path.write_text(json.dumps({"host": host_name(), "pid": os.getpid()} | owner))
    return path


def test_lease_is_there_in_the_block_only(tmp_path: Path) -> None:
    with holding_lease(tmp_path):
        owner = json.loads((tmp_path / LEASE_FILE).read_text())
        assert (owner["host"], owner["pid"]) == (host_name(), os.getpid())
    assert not (tmp_path / LEASE_FILE).exists()


def test_lease_is_given_back_after_an_error_too(tmp_path: Path) -> None:
    with pytest.raises(KeyError), holding_lease(tmp_path):
        raise KeyError
    assert not (tmp_path / LEASE_FILE).exists()


def test_second_run_in_the_same_folder_is_refused_by_name(tmp_path: Path) -> None:
    with (
        holding_lease(tmp_path),
        pytest.raises(RecordError, match=rf"process {os.getpid()} on .* works on this run"),
        holding_lease(tmp_path),
    ):
        pass
    assert not (tmp_path / LEASE_FILE).exists()


def test_living_process_is_named(tmp_path: Path) -> None:
    parent = os.getppid()
    path = write_owner(tmp_path, pid=parent, process=process_token(parent), time="noon")
    with pytest.raises(RecordError, match=f"process {parent} on .* since noon\n  wait for its end"):
        Lease(tmp_path)
    assert json.loads(path.read_text())["pid"] == parent


def test_lease_of_a_process_that_was_killed_is_taken_over(tmp_path: Path) -> None:
    code = "import os, sys; from pathlib import Path\n"
    code += "from epochal.records.alive.lease import Lease; Lease(Path(sys.argv[1])); os._exit(9)"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert done.returncode == 9
    before = json.loads((tmp_path / LEASE_FILE).read_text())["pid"]
    with holding_lease(tmp_path):
        assert json.loads((tmp_path / LEASE_FILE).read_text())["pid"] != before


def test_number_that_another_process_has_meanwhile_does_not_hold_it(tmp_path: Path) -> None:
    write_owner(tmp_path, process="another-boot:1")
    with holding_lease(tmp_path):
        pass


def test_damaged_lease_holds_nothing(tmp_path: Path) -> None:
    for text in ["", "[]", "{", '{"host": 3}']:
        (tmp_path / LEASE_FILE).write_text(text)
        with holding_lease(tmp_path):
            pass


def test_process_of_another_machine_lives_until_it_was_silent_for_long(
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


def test_lease_that_was_lost_is_not_taken_from_its_new_owner(tmp_path: Path) -> None:
    mine = Lease(tmp_path)
    path = write_owner(tmp_path, host="elsewhere")
    mine.release()
    assert path.exists()


def test_file_systems_without_locks_work_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with holding_lease(tmp_path):
        assert (tmp_path / LEASE_FILE).exists()


def test_folder_that_is_gone_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="No such file"):
        Lease(tmp_path / "gone")
