"""Tests of how much of a disk is freed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from epochal.records.folder.disk_usage import FreedSpace, measure_freed_bytes

if TYPE_CHECKING:
    from pathlib import Path


def blocks(path: Path) -> int:
    return path.lstat().st_blocks * 512


def test_folders_and_files_count(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    (folder / "b").mkdir(parents=True)
    (folder / "b" / "file").write_bytes(b"x" * 10_000)
    parts = (folder, folder / "b", folder / "b" / "file")
    assert measure_freed_bytes(folder) == sum(map(blocks, parts)) >= 10_000
    assert measure_freed_bytes(tmp_path / "nothing") == 0


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * 100_000)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "link").symlink_to(tmp_path / "big")
    (tmp_path / "a" / "circle").symlink_to(tmp_path / "a")
    assert measure_freed_bytes(tmp_path / "a") < 50_000


def test_a_file_is_freed_with_its_last_link(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "code").write_bytes(b"x" * 100_000)
    os.link(tmp_path / "a" / "code", tmp_path / "b" / "code")
    os.link(tmp_path / "a" / "code", tmp_path / "c" / "code")
    usage = FreedSpace()
    usage.add(tmp_path / "a")
    usage.add(tmp_path / "b")
    assert usage.freed_bytes < 50_000
    usage.add(tmp_path / "c")
    assert usage.freed_bytes >= 100_000


def test_a_store_frees_contents_that_no_run_has(tmp_path: Path) -> None:
    for name in ("store", "a"):
        (tmp_path / name).mkdir()
    (tmp_path / "store" / "code").write_bytes(b"x" * 100_000)
    (tmp_path / "store" / "other").write_bytes(b"x" * 100_000)
    os.link(tmp_path / "store" / "code", tmp_path / "a" / "code")
    usage = FreedSpace()
    usage.add(tmp_path / "a")
    assert usage.freed_bytes < 50_000
    usage.add_store(tmp_path / "store")
    assert 100_000 <= usage.freed_bytes < 150_000
