from __future__ import annotations

from pathlib import Path

import pytest

from epochal.records.machine import mounts
from epochal.records.machine.mounts import find_file_system, is_network_file_system

MOUNTS = r"""
/dev/sda1 / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
server:/data /home/my\040data lustre rw 0 0
tmpfs /tmp tmpfs rw 0 0
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/srv/runs", ("ext4", "/")),
        ("/home/ada/runs", ("nfs4", "/home")),
        ("/home/my data/runs", ("lustre", "/home/my data")),
        ("/homes", ("ext4", "/")),
    ],
)
def test_the_nearest_mount_counts(
    folder: str, kind: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mounts").write_text(MOUNTS)
    monkeypatch.setattr(mounts, "MOUNTS", tmp_path / "mounts")
    assert find_file_system(Path(folder)) == kind


def test_a_system_that_does_not_say_gives_no_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounts, "MOUNTS", tmp_path / "nowhere")
    assert find_file_system(tmp_path) == ("", "")


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "lustre", "fuse.sshfs", "beegfs"])
def test_what_comes_over_a_network_is_shared(kind: str) -> None:
    assert is_network_file_system(kind)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "fuseblk", ""])
def test_what_is_on_this_machine_is_not_shared(kind: str) -> None:
    assert not is_network_file_system(kind)
