"""Tests of epochal.durable.system: what is on disk after any operation failed."""

from __future__ import annotations

import dataclasses
import errno
import os
import stat
from typing import TYPE_CHECKING

import pytest

from epochal import durable
from epochal.durable import WriteError
from failing_disk import ERRORS, Faults, files

if TYPE_CHECKING:
    from pathlib import Path


def test_temporary_file_is_in_the_folder_of_its_target(tmp_path, monkeypatch) -> None:
    renamed: list[tuple[Path, Path]] = []

    def replace(old: Path, new: Path) -> None:
        renamed.append((old, new))
        old.replace(new)

    watched = dataclasses.replace(durable.system.operations, replace=replace)
    monkeypatch.setattr(durable.system, "operations", watched)
    durable.write_bytes(tmp_path / ("n" * 255), b"x")
    [(old, new)] = renamed
    assert old.parent == new.parent == tmp_path
    assert old.name.startswith(".")


@pytest.mark.parametrize("code", ERRORS)
@pytest.mark.parametrize("allowed", range(8))
def test_a_failing_write_leaves_the_old_or_the_whole_new_file(
    tmp_path, monkeypatch, allowed, code
) -> None:
    path = tmp_path / "status.json"
    path.write_bytes(b"old")
    faults = Faults(allowed=allowed, code=code)
    monkeypatch.setattr(durable.system, "operations", faults.operations)
    with pytest.raises(WriteError, match=r"status\.json: cannot be written: \w"):
        durable.write_bytes(path, b"new content")
    was_renamed = "replace" in faults.names and faults.failed != "replace"
    assert path.read_bytes() == (b"new content" if was_renamed else b"old")
    assert files(tmp_path) == ["status.json"]


def test_a_stuck_temporary_file_does_not_get_the_final_name(tmp_path, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "fault")

    stuck = dataclasses.replace(durable.system.operations, fsync=fail, unlink=fail)
    monkeypatch.setattr(durable.system, "operations", stuck)
    with pytest.raises(WriteError, match="fault"):
        durable.write_bytes(tmp_path / "a", b"x")
    [left] = files(tmp_path)
    assert left.startswith(".a.")
    assert left.endswith(".tmp")


def test_interrupting_a_write_removes_the_temporary_file(tmp_path, monkeypatch) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    broken = dataclasses.replace(durable.system.operations, fsync=interrupt)
    monkeypatch.setattr(durable.system, "operations", broken)
    with pytest.raises(KeyboardInterrupt):
        durable.write_bytes(tmp_path / "a", b"x")
    assert files(tmp_path) == []


def test_short_writes_are_completed(tmp_path, monkeypatch) -> None:
    drip = dataclasses.replace(
        durable.system.operations, write=lambda fd, data: os.write(fd, data[:3])
    )
    monkeypatch.setattr(durable.system, "operations", drip)
    durable.write_bytes(tmp_path / "a", b"0123456789")
    with durable.Appender(tmp_path / "b") as appender:
        appender.append(b"0123456789")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == b"0123456789"


def test_a_write_of_nothing_is_an_error(tmp_path, monkeypatch) -> None:
    stuck = dataclasses.replace(durable.system.operations, write=lambda *_: 0)
    monkeypatch.setattr(durable.system, "operations", stuck)
    with pytest.raises(WriteError, match="nothing was written"):
        durable.write_bytes(tmp_path / "a", b"x")


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP])
def test_file_systems_that_cannot_sync_folders_are_accepted(tmp_path, monkeypatch, code) -> None:
    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(code, "not for folders")

    picky = dataclasses.replace(durable.system.operations, fsync=fsync)
    monkeypatch.setattr(durable.system, "operations", picky)
    durable.write_bytes(tmp_path / "a", b"x")
    assert files(tmp_path) == ["a"]


def test_errors_name_the_file_the_reason_and_the_number(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(
        durable.system, "operations", Faults(allowed=0, code=errno.ENOSPC).operations
    )
    with pytest.raises(WriteError) as caught:
        durable.write_bytes(tmp_path / "a", b"x")
    assert str(caught.value) == f"{tmp_path / 'a'}: cannot be written: no space left on device"
    assert caught.value.errno == errno.ENOSPC
    assert isinstance(caught.value.__cause__, OSError)


def test_file_is_synced_before_it_gets_its_name_and_the_folder_after(tmp_path, monkeypatch) -> None:
    faults = Faults(allowed=1000)
    monkeypatch.setattr(durable.system, "operations", faults.operations)
    durable.write_bytes(tmp_path / "a", b"x")
    assert faults.names == [
        *("open", "write", "fsync", "close", "replace"),
        *("open", "fsync", "close"),
    ]
