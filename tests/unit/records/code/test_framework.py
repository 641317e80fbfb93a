"""Tests of epochal.records.code.framework."""

from __future__ import annotations

import os
import zipfile
from typing import TYPE_CHECKING

import pytest

import epochal
from epochal.records.code.framework import (
    FrameworkPackage,
    digest_package,
    get_package_dir,
    unpack_framework,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "epochal"
    (folder / "inner" / "__pycache__").mkdir(parents=True)
    (folder / "a.py").write_text("1\n")
    (folder / "inner" / "b.py").write_text("2\n")
    (folder / "inner" / "__pycache__" / "b.pyc").write_text("no")
    return folder


def test_the_archive_depends_only_on_the_files(root: Path, tmp_path: Path) -> None:
    first = FrameworkPackage.find(root).archive()
    os.utime(root / "a.py", (1, 1))
    assert FrameworkPackage.find(root).archive() == first
    (root / "a.py").write_text("3\n")
    assert FrameworkPackage.find(root).archive()[0] != first[0]


def test_an_archive_is_unpacked(root: Path, tmp_path: Path) -> None:
    digest, data = FrameworkPackage.find(root).archive()
    (tmp_path / "a.zip").write_bytes(data)
    (tmp_path / "out").mkdir()
    with pytest.raises(ValueError, match="is not as recorded"):
        unpack_framework(tmp_path / "a.zip", tmp_path / "out", "0" * len(digest))
    unpack_framework(tmp_path / "a.zip", tmp_path / "out", digest)
    assert digest_package(tmp_path / "out" / "epochal") == digest_package(root)
    assert not list((tmp_path / "out").rglob("*.pyc"))


def test_the_stamp_changes_with_a_file(root: Path) -> None:
    package = FrameworkPackage.find(root)
    assert package.may_still_change
    for name in ("a.py", "inner/b.py"):
        os.utime(root / name, (1, 1))
    assert FrameworkPackage.find(root).stamp != package.stamp
    assert not FrameworkPackage.find(root).may_still_change
    assert digest_package(root / "nowhere") == ""
    assert str(get_package_dir() / "__init__.py") == epochal.__file__


def test_damaged_archives_and_paths_outside_of_the_package_are_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    for name in ("../evil.py", "epochal/../../evil.py", "/evil.py", "other/a.py"):
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
            archive.writestr(name, "1")
        with pytest.raises(ValueError, match="outside of the package"):
            unpack_framework(tmp_path / "a.zip", tmp_path / "out", "")
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("epochal/bomb", bytes((1 << 26) + 1))
    with pytest.raises(ValueError, match="too large when unpacked"):
        unpack_framework(tmp_path / "a.zip", tmp_path / "out", "")
    (tmp_path / "a.zip").write_bytes(b"PK what")
    with pytest.raises(ValueError, match="zip"):
        unpack_framework(tmp_path / "a.zip", tmp_path / "out", "")
    (tmp_path / "link.zip").symlink_to("/dev/zero")
    with pytest.raises(OSError, match="links"):
        unpack_framework(tmp_path / "link.zip", tmp_path / "out", "")
    assert list((tmp_path / "out").iterdir()) == []
