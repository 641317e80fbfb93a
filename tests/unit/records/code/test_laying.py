"""Tests of epochal.records.code.laying."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from epochal.records.code.laying import Laying, with_parents
from epochal.records.code.manifest import File
from epochal.records.code.reading import Reading

if TYPE_CHECKING:
    from pathlib import Path


def lay(root: Path, *names: str, before: tuple[str, ...] = ()) -> tuple[list[File], Path]:
    """Files whose content is their name, laid into ``root / "code"``."""
    reading = Reading(root, None, max_bytes=100)
    for name in names:
        reading.new[hashlib.sha256(name.encode()).hexdigest()] = name.encode()
    files = [file_of(name) for name in names]
    kept, others = Laying(root / "code", reading).lay(files, before=[file_of(b) for b in before])
    assert others == []
    for file in kept:
        assert (root / "code" / file.place).read_text() == file.path
    return kept, root / "code"


def file_of(name: str) -> File:
    return File(name, hashlib.sha256(name.encode()).hexdigest(), len(name), 0o644)


def test_files_lie_under_their_own_names(tmp_path: Path) -> None:
    _, folder = lay(tmp_path, "a.py", "b/c.py")
    assert sorted(p.name for p in (folder / "project").rglob("*.py")) == ["a.py", "c.py"]


def test_names_of_one_spelling_are_parted(tmp_path: Path) -> None:
    kept, _ = lay(tmp_path, "a.py", "A.py", "caf\u00e9", "cafe\u0301", "D", "d/e.py")
    assert [bool(file.at) for file in kept].count(True) == 3
    assert all(file.at.startswith("aside/") for file in kept if file.at)


def test_name_that_an_earlier_file_has_is_parted(tmp_path: Path) -> None:
    kept, _ = lay(tmp_path, "a.py", before=("A.PY",))
    assert kept[0].at


def test_file_without_a_content_is_named(tmp_path: Path) -> None:
    reading = Reading(tmp_path, None, max_bytes=100)
    kept, others = Laying(tmp_path / "code", reading).lay([file_of("a.py")])
    assert kept == []
    assert [(other.path, other.kind) for other in others] == [("a.py", "unwritten")]


def test_path_is_listed_with_the_folders_above_it() -> None:
    assert with_parents("a/b/c.py") == ["a/b/c.py", "a/b", "a"]
