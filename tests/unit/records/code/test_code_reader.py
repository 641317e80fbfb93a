"""Tests of reading the files of a project and writing them into a run."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from epochal.records.code.code_manifest import CodeFile, CodeManifest
from epochal.records.code.code_reader import CodeReader, CodeWriter, with_parents
from epochal.records.code.content_store import ContentStore
from epochal.records.code.file_content import FileStamp
from epochal.records.code.file_selection import CandidateFile

if TYPE_CHECKING:
    from pathlib import Path


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def found(path: Path) -> CandidateFile:
    return CandidateFile(path.name, FileStamp.of(path.stat()), 0o755)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.py"
    path.write_text("x = 1\n")
    return path


def test_a_file_is_read_with_its_hash_and_mode(file: Path) -> None:
    reader = CodeReader(file.parent, None, max_bytes=100)
    reader.read(found(file))
    assert reader.files == [CodeFile("a.py", digest(b"x = 1\n"), 6, 0o755)]
    assert reader.new == {digest(b"x = 1\n"): b"x = 1\n"}


def test_content_that_the_store_has_is_not_new(file: Path, tmp_path: Path) -> None:
    store = ContentStore(tmp_path / "store")
    store.put({digest(b"x = 1\n"): b"x = 1\n"})
    reader = CodeReader(file.parent, store, max_bytes=100)
    reader.read(found(file))
    assert len(reader.files) == 1
    assert reader.new == {}


def test_files_that_grew_or_were_deleted_are_named(file: Path) -> None:
    reader = CodeReader(file.parent, None, max_bytes=3)
    reader.read(found(file))
    file.rename(file.with_name("b.py"))
    reader.read_whole("a.py")
    assert reader.files == []
    assert [other.kind for other in reader.others] == ["large", "unreadable"]


def test_an_imported_file_may_be_large(file: Path) -> None:
    reader = CodeReader(file.parent, None, max_bytes=3)
    reader.read_whole("a.py")
    assert [one.path for one in reader.files] == ["a.py"]


def test_imports_of_an_earlier_attempt_are_read_if_they_exist(file: Path) -> None:
    reader = CodeReader(file.parent, None, max_bytes=3)
    before = CodeManifest(
        project="", files=(CodeFile("a.py", "", 1, 1), CodeFile("gone.py", "", 1, 1))
    )
    reader.read_imported(before)
    assert [one.path for one in reader.files] == ["a.py"]
    assert reader.others == []


def test_a_content_in_the_store_is_read_again(file: Path, tmp_path: Path) -> None:
    store = ContentStore(tmp_path / "store")
    store.put({digest(b"x = 1\n"): b"x = 1\n"})
    reader = CodeReader(file.parent, store, max_bytes=100)
    reader.read(found(file))
    assert reader.fetch(reader.files[0]) == b"x = 1\n"
    file.write_text("x = 2\n")
    with pytest.raises(OSError, match="it changed while the run started"):
        reader.fetch(reader.files[0])


def write(root: Path, *names: str, before: tuple[str, ...] = ()) -> tuple[list[CodeFile], Path]:
    """Files whose content is their name, written into ``root / "code"``."""
    reader = CodeReader(root, None, max_bytes=100)
    for name in names:
        reader.new[hashlib.sha256(name.encode()).hexdigest()] = name.encode()
    files = [file_of(name) for name in names]
    kept, others = CodeWriter(root / "code", reader).write(
        files, before=[file_of(b) for b in before]
    )
    assert others == []
    for file in kept:
        assert (root / "code" / file.place).read_text() == file.path
    return kept, root / "code"


def file_of(name: str) -> CodeFile:
    return CodeFile(name, hashlib.sha256(name.encode()).hexdigest(), len(name), 0o644)


def test_files_are_written_under_their_own_names(tmp_path: Path) -> None:
    _, folder = write(tmp_path, "a.py", "b/c.py")
    assert sorted(p.name for p in (folder / "project").rglob("*.py")) == ["a.py", "c.py"]


def test_names_that_differ_only_in_case_or_normalization_are_written_aside(tmp_path: Path) -> None:
    kept, _ = write(tmp_path, "a.py", "A.py", "caf\u00e9", "cafe\u0301", "D", "d/e.py")
    assert [bool(file.at) for file in kept].count(True) == 3
    assert all(file.at.startswith("aside/") for file in kept if file.at)


def test_name_that_an_earlier_file_has_is_written_aside(tmp_path: Path) -> None:
    kept, _ = write(tmp_path, "a.py", before=("A.PY",))
    assert kept[0].at


def test_file_without_content_is_listed(tmp_path: Path) -> None:
    reader = CodeReader(tmp_path, None, max_bytes=100)
    kept, others = CodeWriter(tmp_path / "code", reader).write([file_of("a.py")])
    assert kept == []
    assert [(other.path, other.kind) for other in others] == [("a.py", "unwritten")]


def test_path_with_its_parents() -> None:
    assert with_parents("a/b/c.py") == ["a/b/c.py", "a/b", "a"]
