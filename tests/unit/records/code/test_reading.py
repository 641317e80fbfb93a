"""Tests of epochal.records.code.reading."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from epochal.records.code.content import Stamp
from epochal.records.code.manifest import File, Manifest
from epochal.records.code.reading import Reading
from epochal.records.code.store import Store
from epochal.records.code.walk import Found

if TYPE_CHECKING:
    from pathlib import Path


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def found(path: Path) -> Found:
    return Found(path.name, Stamp.of(path.stat()), 0o755)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.py"
    path.write_text("x = 1\n")
    return path


def test_file_is_taken_in_with_its_hash_and_mode(file: Path) -> None:
    reading = Reading(file.parent, None, max_bytes=100)
    reading.read(found(file))
    assert reading.files == [File("a.py", digest(b"x = 1\n"), 6, 0o755)]
    assert reading.new == {digest(b"x = 1\n"): b"x = 1\n"}


def test_content_that_the_store_has_is_not_new(file: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.put({digest(b"x = 1\n"): b"x = 1\n"})
    reading = Reading(file.parent, store, max_bytes=100)
    reading.read(found(file))
    assert len(reading.files) == 1
    assert reading.new == {}


def test_file_that_grew_or_went_is_named(file: Path) -> None:
    reading = Reading(file.parent, None, max_bytes=3)
    reading.read(found(file))
    file.rename(file.with_name("b.py"))
    reading.read_whole("a.py")
    assert reading.files == []
    assert [other.kind for other in reading.others] == ["large", "unreadable"]


def test_imported_file_may_be_large(file: Path) -> None:
    reading = Reading(file.parent, None, max_bytes=3)
    reading.read_whole("a.py")
    assert [one.path for one in reading.files] == ["a.py"]


def test_what_an_earlier_attempt_imported_is_read_if_it_is_still_there(file: Path) -> None:
    reading = Reading(file.parent, None, max_bytes=3)
    before = Manifest(project="", files=(File("a.py", "", 1, 1), File("gone.py", "", 1, 1)))
    reading.read_imported(before)
    assert [one.path for one in reading.files] == ["a.py"]
    assert reading.others == []


def test_content_is_fetched_also_if_only_the_store_had_it(file: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.put({digest(b"x = 1\n"): b"x = 1\n"})
    reading = Reading(file.parent, store, max_bytes=100)
    reading.read(found(file))
    assert reading.fetch(reading.files[0]) == b"x = 1\n"
    file.write_text("x = 2\n")
    with pytest.raises(OSError, match="it changed while it was kept"):
        reading.fetch(reading.files[0])
