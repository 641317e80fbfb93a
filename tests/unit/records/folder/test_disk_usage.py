"""Tests of epochal.records.folder.disk_usage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.records.folder.disk_usage import DiskUsage, measure_disk_usage

if TYPE_CHECKING:
    from pathlib import Path


def test_parts_are_listed_by_size(tmp_path: Path) -> None:
    (tmp_path / "logs" / "deep").mkdir(parents=True)
    (tmp_path / "code").mkdir()
    (tmp_path / "logs" / "deep" / "a").write_bytes(b"12345")
    (tmp_path / "logs" / "b").write_bytes(b"12345")
    (tmp_path / "run.json").write_bytes(b"12")
    (tmp_path / "code" / "x").write_bytes(b"123")
    (tmp_path / "code" / "y").hardlink_to(tmp_path / "code" / "x")
    assert measure_disk_usage(tmp_path) == [
        DiskUsage(name="logs", num_bytes=10, num_files=2, shared_bytes=0),
        DiskUsage(name="code", num_bytes=6, num_files=2, shared_bytes=6),
        DiskUsage(name="files", num_bytes=2, num_files=1, shared_bytes=0),
    ]


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"1" * 1000)
    run = tmp_path / "run"
    run.mkdir()
    (run / "link").symlink_to(tmp_path / "big")
    (run / "loop").symlink_to(run)
    (part,) = measure_disk_usage(run)
    assert part.num_bytes < 1000


def test_a_missing_folder_has_no_parts(tmp_path: Path) -> None:
    assert measure_disk_usage(tmp_path / "none") == []
