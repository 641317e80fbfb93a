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


def test_larger_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one")
    assert read_content(tmp_path / "a", max_bytes=2) is None


def test_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        read_content(tmp_path / "b", max_bytes=10)


def test_fifo_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a")
    assert read_content(tmp_path / "a", max_bytes=10) is None


def test_folder_is_no_file(tmp_path: Path) -> None:
    assert read_content(tmp_path, max_bytes=10) is None


def writing(path: Path, times: int) -> Callable[[int, int], bytes]:
    """A ``read`` during which somebody adds to the file, each time it is opened."""
    left = [times]

    def read(descriptor: int, size: int) -> bytes:
        if left[0] and os.lseek(descriptor, 0, os.SEEK_CUR) == 0:
            left[0] -= 1
            with path.open("ab") as file:
                file.write(b"!")
        return real(descriptor, size)

    real = os.read
    return read


def test_file_that_changed_while_it_was_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one")
    monkeypatch.setattr("os.read", writing(path, 1))
    found = read_content(path, max_bytes=10)
    assert found is not None
    assert (found.data, found.is_stable) == (b"one!", True)


def test_file_that_never_rests_is_taken_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one")
    monkeypatch.setattr("os.read", writing(path, 100))
    found = read_content(path, max_bytes=1000)
    assert found is not None
    assert not found.is_stable


def test_file_that_grows_beyond_the_limit_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one")
    monkeypatch.setattr("os.read", writing(path, 100))
    assert read_content(path, max_bytes=3) is None
