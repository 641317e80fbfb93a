from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from epochal.records.folder import machine
from epochal.records.folder.machine import find_file_system, is_network_file_system

if TYPE_CHECKING:
    import pytest

MOUNTS = r"""
/dev/sda1 / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
server:/data /home/my\040data lustre rw 0 0
tmpfs /tmp tmpfs rw 0 0
"""


def test_the_innermost_mount_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, kind in [
        ("/srv/runs", ("ext4", "/")),
        ("/home/ada/runs", ("nfs4", "/home")),
        ("/home/my data/runs", ("lustre", "/home/my data")),
        ("/homes", ("ext4", "/")),
    ]:
        (tmp_path / "mounts").write_text(MOUNTS)
        monkeypatch.setattr(machine, "MOUNTS", tmp_path / "mounts")
        assert find_file_system(Path(folder)) == kind


def test_without_proc_the_type_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "MOUNTS", tmp_path / "nowhere")
    assert find_file_system(tmp_path) == ("", "")


def test_network_file_systems_are_recognised() -> None:
    network = ["nfs", "nfs4", "cifs", "lustre", "fuse.sshfs", "beegfs"]
    local = ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "fuseblk", ""]
    assert [kind for kind in (*network, *local) if is_network_file_system(kind)] == network
