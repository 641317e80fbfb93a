"""Checks of a folder's file system, free space, operations and clock."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from epochal.doctor import storage
from epochal.doctor.storage import check_clock, check_storage
from epochal.records.folder import machine

if TYPE_CHECKING:
    from epochal.doctor.diagnostic import Diagnostic


def finding(name: str, folder: Path) -> Diagnostic:
    (found,) = [one for one in check_storage(folder) if one.name == name]
    return found


def test_a_usual_folder_is_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mounts").write_text("/dev/sda1 / ext4 rw 0 0\n")
    monkeypatch.setattr(machine, "MOUNTS", tmp_path / "mounts")
    found = {one.name: one.level for one in check_storage(tmp_path)}
    assert found.pop("room") in ("ok", "warn")  # this disk may be nearly full
    assert found == {"file system": "ok", "abilities": "ok", "clock": "ok"}


def test_network_and_temporary_file_systems_get_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = {
        "nfs4": "shared over a network",
        "fuse.sshfs": "shared over a network",
        "tmpfs": "a reboot deletes",
        "overlay": "is deleted with the container",
    }
    monkeypatch.setattr(machine, "MOUNTS", tmp_path / "mounts")
    for kind, what in table.items():
        (tmp_path / "mounts").write_text(f"x / {kind} rw 0 0\n")
        found = finding("file system", tmp_path)
        assert (found.level, what in found.what) == ("warn", True), kind
        assert found.hint


def test_an_unknown_file_system_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "MOUNTS", tmp_path / "nowhere")
    assert finding("file system", tmp_path).level == "ok"


def test_little_room_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = SimpleNamespace(free=10**9, total=10**12)
    monkeypatch.setattr(storage.shutil, "disk_usage", lambda _: usage)
    found = finding("room", tmp_path)
    assert (found.level, found.what) == ("warn", "1.0 GB free of 1.0 TB")


def refuse(*_: object) -> None:
    raise OSError(1, "Operation not permitted")


def test_a_folder_without_links_is_usable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "symlink_to", refuse)
    found = finding("abilities", tmp_path)
    assert (found.level, found.what) == ("warn", "cannot do: link (operation not permitted)")


def test_a_folder_without_renames_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage.durable, "write_text", refuse)
    found = finding("abilities", tmp_path)
    assert (found.level, found.what) == ("fail", "cannot do: rename (operation not permitted)")


@pytest.mark.parametrize(
    ("now", "what"),
    [
        (0.0, "shows 1970-01-01"),
        (2e9, "files are dated 100 s ahead of this machine"),
        (2e9 + 200, "files are dated 100 s behind this machine"),
    ],
)
def test_a_wrong_clock_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: float, what: str
) -> None:
    monkeypatch.setattr(
        Path, "touch", lambda path: (path.write_text(""), os.utime(path, (2e9 + 100,) * 2))
    )
    monkeypatch.setattr(storage.time, "time", lambda: now)
    found = check_clock(tmp_path)
    assert (found.level, found.what) == ("warn", what)
