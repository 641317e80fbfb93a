"""Tests of epochal.records.code.content_store."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import pytest

from epochal.records.code.content_store import Known, Seen, Store
from epochal.records.code.file_content import Stamp
from epochal.records.code.framework import Package, archive_name

if TYPE_CHECKING:
    from pathlib import Path


def name_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "code")


def test_contents_are_found_by_their_hash(store: Store) -> None:
    contents = {name_of(data): data for data in (b"a", b"b", b"c", b"d", b"e")}
    store.put(contents)
    for name, data in contents.items():
        assert store.has(name, len(data))
        assert store.place_of(name).read_bytes() == data


def test_content_that_a_power_cut_has_torn_is_not_there(store: Store) -> None:
    store.put({name_of(b"abc"): b"abc"})
    place = store.place_of(name_of(b"abc"))
    place.chmod(0o644)
    place.write_bytes(b"")
    assert not store.has(name_of(b"abc"), 3)
    store.put({name_of(b"abc"): b"abc"})
    assert store.has(name_of(b"abc"), 3)


def test_what_no_run_shares_any_more_is_dropped(store: Store, tmp_path: Path) -> None:
    store.put({name_of(b"abc"): b"abc", name_of(b"z"): b"z"})
    os.link(store.place_of(name_of(b"z")), tmp_path / "shared")
    assert store.drop_unused() == 3
    assert not store.has(name_of(b"abc"), 3)
    assert store.has(name_of(b"z"), 1)


def test_package_is_packed_once(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "epochal"
    root.mkdir()
    (root / "a.py").write_text("1\n")
    os.utime(root / "a.py", (1, 1))
    digest = store.keep_package(Package.find(root))
    assert (store.folder / archive_name(digest)).is_file()

    def refuse(_: Package) -> None:
        raise AssertionError("packed again")

    monkeypatch.setattr(Package, "archive", refuse)
    assert store.keep_package(Package.find(root)) == digest


def test_package_that_is_gone_from_the_store_is_packed_again(store: Store, tmp_path: Path) -> None:
    root = tmp_path / "epochal"
    root.mkdir()
    (root / "a.py").write_text("1\n")
    os.utime(root / "a.py", (1, 1))
    digest = store.keep_package(Package.find(root))
    (store.folder / archive_name(digest)).unlink()
    assert store.keep_package(Package.find(root)) == digest
    assert (store.folder / archive_name(digest)).is_file()


OLD = Stamp(3, 1, 1, 7)


def test_unchanged_file_is_remembered(store: Store, tmp_path: Path) -> None:
    store.folder.mkdir()
    seen = Seen.load(store, tmp_path, "k")
    seen.add("a.py", Known(OLD, "00", 3, is_redacted=False))
    seen.save({"a.py"})
    again = Seen.load(store, tmp_path, "k")
    assert again.find("a.py", OLD) == Known(OLD, "00", 3, is_redacted=False)
    assert again.find("a.py", Stamp(3, 2, 1, 7)) is None
    assert again.find("b.py", OLD) is None


def test_other_key_or_project_remembers_nothing(store: Store, tmp_path: Path) -> None:
    store.folder.mkdir()
    seen = Seen.load(store, tmp_path, "k")
    seen.add("a.py", Known(OLD, "00", 3, is_redacted=False))
    seen.save({"a.py"})
    assert Seen.load(store, tmp_path, "other").find("a.py", OLD) is None
    assert Seen.load(store, tmp_path / "x", "k").find("a.py", OLD) is None


def test_file_that_may_still_change_unnoticed_is_not_remembered(
    store: Store, tmp_path: Path
) -> None:
    path = tmp_path / "a.py"
    path.write_text("abc")
    stamp = Stamp.of(path.stat())
    seen = Seen.load(store, tmp_path, "k")
    seen.add("a.py", Known(stamp, "00", 3, is_redacted=False))
    assert seen.find("a.py", stamp) is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"key": "k", "files": {"a.py": 3}}', '{"key": "k", "files": 1}']
)
def test_damaged_memory_is_no_trouble(store: Store, tmp_path: Path, text: str) -> None:
    store.folder.mkdir()
    path = Seen.load(store, tmp_path, "k").path
    assert path is not None
    path.write_text(text)
    assert Seen.load(store, tmp_path, "k").find("a.py", OLD) is None


def test_memory_that_cannot_be_written_is_no_trouble(store: Store, tmp_path: Path) -> None:
    seen = Seen.load(store, tmp_path, "k")  # the folder of the store is not there
    seen.add("a.py", Known(OLD, "00", 3, is_redacted=False))
    seen.save({"a.py"})


def test_content_that_somebody_wrote_into_is_not_there(store: Store, tmp_path: Path) -> None:
    store.put({name_of(b"abc"): b"abc"})
    shared = tmp_path / "shared"
    os.link(store.place_of(name_of(b"abc")), shared)
    shared.chmod(0o644)
    shared.write_bytes(b"abd")  # in the folder of one run, and as long as before
    assert not store.has(name_of(b"abc"), 3)
    store.put({name_of(b"abc"): b"abc"})
    assert store.place_of(name_of(b"abc")).read_bytes() == b"abc"


def test_what_people_were_told_is_remembered_also_by_another_epochal(
    store: Store, tmp_path: Path
) -> None:
    store.folder.mkdir()
    seen = Seen.load(store, tmp_path, "k")
    assert seen.tell(frozenset({"a/*.json"}))
    assert not seen.tell(frozenset({"a/*.json"}))
    seen.save(set())
    again = Seen.load(store, tmp_path, "other")
    assert not again.tell(frozenset({"a/*.json"}))
    assert again.tell(frozenset({"a/*.json", "b/*.json"}))
    assert not again.tell(frozenset())
