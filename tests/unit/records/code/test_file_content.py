"""Tests of epochal.records.code.file_content."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from epochal.records.code.file_content import FileStamp, read_content

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_file_is_read_with_its_stamp(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one")
    found = read_content(path, max_bytes=10)
    assert found is not None
    assert (found.data, found.is_stable) == (b"one", True)
    assert found.stamp == FileStamp.of(path.stat())


def test_only_small_regular_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one")
    assert read_content(tmp_path / "a", max_bytes=2) is None
    os.mkfifo(tmp_path / "fifo")
    assert read_content(tmp_path / "fifo", max_bytes=10) is None
    assert read_content(tmp_path, max_bytes=10) is None
    (tmp_path / "link").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        read_content(tmp_path / "link", max_bytes=10)


def writing(path: Path, times: int) -> Callable[[int, int], bytes]:
    """A ``read`` during which the file grows, each time it is opened."""
    left = [times]

    def read(descriptor: int, size: int) -> bytes:
        if left[0] and os.lseek(descriptor, 0, os.SEEK_CUR) == 0:
            left[0] -= 1
            with path.open("ab") as file:
                file.write(b"!")
        return real(descriptor, size)

    real = os.read
    return read


def test_a_file_that_changes_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    for times, limit, expected in ((1, 10, (b"one!", True)), (100, 1000, (b"one!!", False))):
        path.write_bytes(b"one")
        monkeypatch.setattr("os.read", writing(path, times))
        found = read_content(path, max_bytes=limit)
        assert found is not None
        assert (found.data, found.is_stable) == expected
    path.write_bytes(b"one")
    assert read_content(path, max_bytes=3) is None
