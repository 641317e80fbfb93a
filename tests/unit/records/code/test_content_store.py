"""Tests of epochal.records.code.content_store."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import pytest

from epochal.records.code.content_store import CachedFile, ContentStore, FileCache
from epochal.records.code.file_content import FileStamp
from epochal.records.code.framework import FrameworkPackage, get_archive_name

if TYPE_CHECKING:
    from pathlib import Path


def name_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def store(tmp_path: Path) -> ContentStore:
    return ContentStore(tmp_path / "code")


def test_contents_are_found_by_their_hash(store: ContentStore) -> None:
    contents = {name_of(data): data for data in (b"a", b"b", b"c", b"d", b"e")}
    store.put(contents)
    for name, data in contents.items():
        assert store.has(name, len(data))
        assert store.path_of(name).read_bytes() == data


def test_a_torn_content_is_written_again(store: ContentStore) -> None:
    store.put({name_of(b"abc"): b"abc"})
    place = store.path_of(name_of(b"abc"))
    place.chmod(0o644)
    place.write_bytes(b"")
    assert not store.has(name_of(b"abc"), 3)
    store.put({name_of(b"abc"): b"abc"})
    assert store.has(name_of(b"abc"), 3)


def test_unused_contents_are_removed(store: ContentStore, tmp_path: Path) -> None:
    store.put({name_of(b"abc"): b"abc", name_of(b"z"): b"z"})
    os.link(store.path_of(name_of(b"z")), tmp_path / "shared")
    assert store.remove_unused() == 3
    assert not store.has(name_of(b"abc"), 3)
    assert store.has(name_of(b"z"), 1)


def test_epochal_is_archived_once(
    store: ContentStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "epochal"
    root.mkdir()
    (root / "a.py").write_text("1\n")
    os.utime(root / "a.py", (1, 1))
    digest = store.keep_package(FrameworkPackage.find(root))
    archive = store.folder / get_archive_name(digest)
    archive.unlink()
    assert store.keep_package(FrameworkPackage.find(root)) == digest
    assert archive.is_file()

    def refuse(_: FrameworkPackage) -> None:
        raise AssertionError("archived again")

    monkeypatch.setattr(FrameworkPackage, "archive", refuse)
    assert store.keep_package(FrameworkPackage.find(root)) == digest


OLD = FileStamp(3, 1, 1, 7)


def test_unchanged_files_of_a_project_are_cached(store: ContentStore, tmp_path: Path) -> None:
    entry = CachedFile(OLD, "00", 3, is_redacted=False)
    for _ in range(2):  # without a folder, saving does nothing
        seen = FileCache.load(store, tmp_path, "k")
        seen.add("a.py", entry)
        seen.save({"a.py"})
        store.folder.mkdir(exist_ok=True)
    again = FileCache.load(store, tmp_path, "k")
    assert again.find("a.py", OLD) == entry
    assert again.find("a.py", FileStamp(3, 2, 1, 7)) is None
    assert again.find("b.py", OLD) is None
    assert FileCache.load(store, tmp_path, "other").find("a.py", OLD) is None
    assert FileCache.load(store, tmp_path / "x", "k").find("a.py", OLD) is None


def test_a_recent_file_is_not_cached(store: ContentStore, tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("abc")
    stamp = FileStamp.of(path.stat())
    seen = FileCache.load(store, tmp_path, "k")
    seen.add("a.py", CachedFile(stamp, "00", 3, is_redacted=False))
    assert seen.find("a.py", stamp) is None


def test_a_damaged_cache_is_ignored(store: ContentStore, tmp_path: Path) -> None:
    for text in ["", "{", "[]", '{"key": "k", "files": {"a.py": 3}}', '{"key": "k", "files": 1}']:
        store.folder.mkdir(exist_ok=True)
        path = FileCache.load(store, tmp_path, "k").path
        assert path is not None
        path.write_text(text)
        assert FileCache.load(store, tmp_path, "k").find("a.py", OLD) is None


def test_a_modified_content_is_written_again(store: ContentStore, tmp_path: Path) -> None:
    store.put({name_of(b"abc"): b"abc"})
    shared = tmp_path / "shared"
    os.link(store.path_of(name_of(b"abc")), shared)
    shared.chmod(0o644)
    shared.write_bytes(b"abd")  # in the folder of one run, and as long as before
    assert not store.has(name_of(b"abc"), 3)
    store.put({name_of(b"abc"): b"abc"})
    assert store.path_of(name_of(b"abc")).read_bytes() == b"abc"


def test_reported_files_are_remembered_across_versions(store: ContentStore, tmp_path: Path) -> None:
    store.folder.mkdir()
    seen = FileCache.load(store, tmp_path, "k")
    assert seen.update_reported(frozenset({"a/*.json"}))
    assert not seen.update_reported(frozenset({"a/*.json"}))
    seen.save(set())
    again = FileCache.load(store, tmp_path, "other")
    assert not again.update_reported(frozenset({"a/*.json"}))
    assert again.update_reported(frozenset({"a/*.json", "b/*.json"}))
    assert not again.update_reported(frozenset())
