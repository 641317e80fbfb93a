"""Files of folders that others made: only regular ones are opened, and none through a link."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import epochal
from epochal import durable
from epochal.durable.append import Appender, extend, open_lines

if TYPE_CHECKING:
    from odd_files import OddFiles

REASONS = {
    "link": "is a link and not a regular file",
    "zeros": "is a link and not a regular file",
    "dangling": "is a link and not a regular file",
    "pipe": "is a named pipe and not a regular file",
    "socket": "is a socket and not a regular file",
    "device": "is a device and not a regular file",
    "folder": "is a folder and not a regular file",
}


def test_anything_but_a_regular_file_is_refused_at_once(tmp_path: Path, odd_file: OddFiles) -> None:
    path = tmp_path / "file"
    for kind in odd_file.kinds:
        odd_file(kind, path)
        for read in (durable.open_regular, durable.read_bytes, durable.require_regular):
            with pytest.raises(OSError, match=REASONS[kind]) as caught:
                read(path)
            assert caught.value.filename == str(path), kind
        assert durable.find_object(path) == {}, kind
        assert durable.find_text(path) == "", kind
        for write in (Appender, open_lines, lambda path: extend(path, 0, b"x")):
            with pytest.raises(durable.WriteError, match=REASONS[kind]):
                write(path)
        assert odd_file.is_untouched(), kind


def test_folders_above_a_file_may_be_links(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "file").write_text("text")
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    assert durable.read_text(tmp_path / "runs" / "file") == "text"


def test_a_file_that_the_user_named_may_be_a_link_to_a_regular_one(
    tmp_path: Path, odd_file: OddFiles
) -> None:
    path = tmp_path / "file"
    for kind in odd_file.kinds:
        odd_file(kind, path)
        if kind == "link":
            durable.require_regular(path, follow=True)
        else:
            with pytest.raises(OSError, match=r"not a regular file|No such file"):
                durable.require_regular(path, follow=True)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")
    os.truncate(path, 1 << 40)  # without using the disk
    assert durable.find_text(path) == ""
    with pytest.raises(OSError, match="is larger than 3 bytes"):
        durable.read_bytes(path, max_bytes=3)


def test_a_cache_with_a_second_name_is_not_extended(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "cache").hardlink_to(tmp_path / "mine")
    with pytest.raises(durable.WriteError, match="has another name"):
        extend(tmp_path / "cache", 0, b"x")
    assert (tmp_path / "mine").read_text() == "mine"


READS = re.compile(
    r"(?<!durable)\.(?:read_bytes|read_text)\(|\w\.open\((?:\)|[\"'])|fromfile\(path"
)
OTHERS = {
    "records/code/project_scan.py": "the user's own project",
    "records/code/framework.py": "the package of Epochal itself",
    "records/code/restore.py": "files that it has just made",
    "records/layout/process.py": "files of the kernel",
    "records/folder/machine.py": "files of the kernel, and of installed packages",
    "records/folder/media.py": "a file that the user logs",
    "checkpoint/torch_file.py": "a file that the user named",
}
"""Modules that read other files than those of run folders."""


def test_run_folders_are_read_by_these_functions_only() -> None:
    source = Path(epochal.__file__).parent
    found = {
        path.relative_to(source).as_posix()
        for folder in ("records", "checkpoint")
        for path in (source / folder).rglob("*.py")
        if READS.search(path.read_text(encoding="utf-8"))
    }
    assert found == set(OTHERS), "read it with epochal.durable, or say why not"


def test_a_missing_folder_is_made_but_never_through_a_link(tmp_path: Path) -> None:
    durable.make_inner_dir(tmp_path / "new")
    durable.make_inner_dir(tmp_path / "new")
    for target in (tmp_path / "new", tmp_path / "nothing"):
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "link").symlink_to(target)
        with pytest.raises(durable.WriteError, match="link: cannot be made: is a link"):
            durable.make_inner_dir(tmp_path / "link")
