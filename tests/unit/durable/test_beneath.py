"""Files below a folder are opened without following links, and nothing else is."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from epochal.durable.beneath import open_beneath, read_beneath

if TYPE_CHECKING:
    from pathlib import Path


def test_only_regular_files_below_the_folder_are_opened(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "c.txt").write_text("good")
    (tmp_path / "secret").write_text("secret")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "up").symlink_to(tmp_path)
    (folder / ".hidden").write_text("secret")
    os.mkfifo(folder / "fifo")
    assert read_beneath(folder, "a/b/c.txt", max_bytes=4) == b"good"
    for name in (
        "", ".", "..", "a", "a/b", "link", "up/secret", "../secret", "a/../../secret",
        "/etc/passwd", "a//b/c.txt", "a/b/c.txt/", ".hidden", "fifo",
        "a\\b", "a/b\0", "nothing", "a/./b/c.txt",
    ):  # fmt: skip
        with pytest.raises((OSError, ValueError)):
            open_beneath(folder, name)
    with pytest.raises(OSError, match="larger than 3 bytes"):
        read_beneath(folder, "a/b/c.txt", max_bytes=3)


def test_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "x").write_text("1")
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    assert read_beneath(tmp_path / "run", "x", max_bytes=9) == b"1"


def test_swapping_a_folder_for_a_link_never_leads_out(tmp_path: Path) -> None:
    """A thousand swaps while a reader opens: it gets the file or an error, never the other one."""
    folder = tmp_path / "run"
    (folder / "real").mkdir(parents=True)
    (folder / "real" / "x").write_text("good")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "x").write_text("bad")
    (folder / "way").mkdir()
    (folder / "way" / "x").write_text("good")
    way, aside, bad = (str(path) for path in (folder / "way", folder / "aside", tmp_path / "bad"))
    pid = os.fork()
    if not pid:
        for _ in range(1000):
            os.rename(way, aside)  # noqa: PTH104 - as fast as possible
            os.symlink(bad, way)  # noqa: PTH211
            os.unlink(way)  # noqa: PTH108
            os.rename(aside, way)  # noqa: PTH104
        os._exit(0)
    found = set()
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        with suppress(OSError):
            found.add(read_beneath(folder, "way/x", max_bytes=9))
    assert found <= {b"good"}
