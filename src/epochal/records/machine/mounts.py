"""Finds the file system of a folder, and whether it is on a network."""

from __future__ import annotations

import re
from pathlib import Path

MOUNTS = Path("/proc/self/mounts")
_SHARED = re.compile(
    r"nfs\d?|cifs|smb\d?|lustre|gpfs|beegfs|ceph|glusterfs|afs|9p|virtiofs|fuse(\..+)?|orangefs"
)


def find_file_system(folder: Path) -> tuple[str, str]:
    """The type and mount point of a folder's file system; empty when unknown."""
    try:
        mounts = MOUNTS.read_text("utf-8", "surrogateescape")
    except OSError:  # not Linux
        return "", ""
    place = folder.resolve()
    best = ("", "")
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        mount = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), fields[1])
        if place.is_relative_to(mount) and len(mount) >= len(best[1]):
            best = (fields[2], mount)
    return best


def is_network_file_system(kind: str) -> bool:
    """Whether file systems of this type are on a network."""
    return bool(_SHARED.fullmatch(kind))
