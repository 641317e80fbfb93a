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


def test_content_that_a_power_cut_has_torn_is_not_there(store: ContentStore) -> None:
    store.put({name_of(b"abc"): b"abc"})
    place = store.path_of(name_of(b"abc"))
    place.chmod(0o644)
    place.write_bytes(b"")
    assert not store.has(name_of(b"abc"), 3)
    store.put({name_of(b"abc"): b"abc"})
    assert store.has(name_of(b"abc"), 3)


def test_what_no_run_shares_any_more_is_dropped(store: ContentStore, tmp_path: Path) -> None:
    store.put({name_of(b"abc"): b"abc", name_of(b"z"): b"z"})
    os.link(store.path_of(name_of(b"z")), tmp_path / "shared")
    assert store.remove_unused() == 3
    assert not store.has(name_of(b"abc"), 3)
    assert store.has(name_of(b"z"), 1)


def test_package_is_packed_once(
    store: ContentStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "epochal"
    root.mkdir()
    (root / "a.py").write_text("1\n")
    os.utime(root / "a.py", (1, 1))
    digest = store.keep_package(FrameworkPackage.find(root))
    assert (store.folder / get_archive_name(digest)).is_file()

    def refuse(_: FrameworkPackage) -> None:
        raise AssertionError("packed again")

    monkeypatch.setattr(FrameworkPackage, "archive", refuse)
    assert store.keep_package(FrameworkPackage.find(root)) == digest


def test_package_that_is_gone_from_the_store_is_packed_again(
    store: ContentStore, tmp_path: Path
) -> None:
    root = tmp_path / "epochal"
    root.mkdir()
    (root / "a.py").write_text("1\n")
    os.utime(root / "a.py", (1, 1))
    digest = store.keep_package(FrameworkPackage.find(root))
    (store.folder / get_archive_name(digest)).unlink()
    assert store.keep_package(FrameworkPackage.find(root)) == digest
    assert (store.folder / get_archive_name(digest)).is_file()


OLD = FileStamp(3, 1, 1, 7)


def test_unchanged_file_is_remembered(store: ContentStore, tmp_path: Path) -> None:
    store.folder.mkdir()
    seen = FileCache.load(store, tmp_path, "k")
    seen.add("a.py", CachedFile(OLD, "00", 3, is_redacted=False))
    seen.save({"a.py"})
    again = FileCache.load(store, tmp_path, "k")
    assert again.find("a.py", OLD) == CachedFile(OLD, "00", 3, is_redacted=False)
    assert again.find("a.py", FileStamp(3, 2, 1, 7)) is None
    assert again.find("b.py", OLD) is None


def test_other_key_or_project_remembers_nothing(store: ContentStore, tmp_path: Path) -> None:
    store.folder.mkdir()
    seen = FileCache.load(store, tmp_path, "k")
    seen.add("a.py", CachedFile(OLD, "00", 3, is_redacted=False))
    seen.save({"a.py"})
    assert FileCache.load(store, tmp_path, "other").find("a.py", OLD) is None
    assert FileCache.load(store, tmp_path / "x", "k").find("a.py", OLD) is None


def test_file_that_may_still_change_unnoticed_is_not_remembered(
    store: ContentStore, tmp_path: Path
) -> None:
    path = tmp_path / "a.py"
    path.write_text("abc")
    stamp = FileStamp.of(path.stat())
    seen = FileCache.load(store, tmp_path, "k")
    seen.add("a.py", CachedFile(stamp, "00", 3, is_redacted=False))
    assert seen.find("a.py", stamp) is None


def test_damaged_memory_is_no_trouble(store: ContentStore, tmp_path: Path) -> None:
    for text in ["", "{", "[]", '{"key": "k", "files": {"a.py": 3}}', '{"key": "k", "files": 1}']:
        store.folder.mkdir(exist_ok=True)
        path = FileCache.load(store, tmp_path, "k").path
        assert path is not None
        path.write_text(text)
        assert FileCache.load(store, tmp_path, "k").find("a.py", OLD) is None


def test_memory_that_cannot_be_written_is_no_trouble(store: ContentStore, tmp_path: Path) -> None:
    seen = FileCache.load(store, tmp_path, "k")  # the folder of the store is not there
    seen.add("a.py", CachedFile(OLD, "00", 3, is_redacted=False))
    seen.save({"a.py"})


def test_content_that_somebody_wrote_into_is_not_there(store: ContentStore, tmp_path: Path) -> None:
    store.put({name_of(b"abc"): b"abc"})
    shared = tmp_path / "shared"
    os.link(store.path_of(name_of(b"abc")), shared)
    shared.chmod(0o644)
    shared.write_bytes(b"abd")  # in the folder of one run, and as long as before
    assert not store.has(name_of(b"abc"), 3)
    store.put({name_of(b"abc"): b"abc"})
    assert store.path_of(name_of(b"abc")).read_bytes() == b"abc"


def test_what_people_were_told_is_remembered_also_by_another_epochal(
    store: ContentStore, tmp_path: Path
) -> None:
    store.folder.mkdir()
    seen = FileCache.load(store, tmp_path, "k")
    assert seen.update_reported(frozenset({"a/*.json"}))
    assert not seen.update_reported(frozenset({"a/*.json"}))
    seen.save(set())
    again = FileCache.load(store, tmp_path, "other")
    assert not again.update_reported(frozenset({"a/*.json"}))
    assert again.update_reported(frozenset({"a/*.json", "b/*.json"}))
    assert not again.update_reported(frozenset())
