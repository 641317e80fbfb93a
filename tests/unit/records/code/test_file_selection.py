"""Tests of epochal.records.code.file_selection."""

from __future__ import annotations

from epochal.records.code.code_manifest import SkippedEntry
from epochal.records.code.file_content import FileStamp
from epochal.records.code.file_selection import (
    CandidateFile,
    SnapshotLimits,
    get_data_group,
    select_files,
)


def file(path: str, size: int = 6) -> CandidateFile:
    return CandidateFile(path, FileStamp(size, 1, 1, 1), 0o644, get_data_group(path))


def kept(*files: CandidateFile, **limits: int) -> set[str]:
    return {one.path for one in select_files(files, SnapshotLimits(**limits))[0]}


def left(*files: CandidateFile, **limits: int) -> list[SkippedEntry]:
    return select_files(files, SnapshotLimits(**limits))[1]


def test_files_are_grouped_by_folder_and_suffix() -> None:
    for path, group in [
        ("a.py", ""),
        ("d/a.PY", ""),
        ("d/a.cu", ""),
        ("a.json", "*.json"),
        ("d/e/a.json", "d/e/*.json"),
        ("d/a.tar.xz", "d/*.xz"),
        ("d/Makefile", "d/*"),
        ("d/frame.0012", "d/*"),
    ]:
        assert get_data_group(path) == group


def test_python_files_are_chosen_first() -> None:
    files = (file("a.txt"), file("b/c.py"), file("d.py"), file("e.md"))
    assert kept(*files, max_files=2) == {"b/c.py", "d.py"}
    assert kept(*files, max_bytes=18) == {"b/c.py", "d.py", "a.txt"}


def test_code_beyond_the_limit_is_named() -> None:
    assert left(file("a.sh"), file("b.py"), max_files=1) == [
        SkippedEntry("a.sh", "many", "beyond the limit of all files")
    ]


def test_a_large_group_is_one_entry() -> None:
    files = [file(f"d/{number}.json", 1000) for number in range(5)]
    assert kept(file("a.py"), *files, max_file_bytes=1000) == {"a.py"}
    assert left(*files, max_file_bytes=1000) == [
        SkippedEntry("d/*.json", "data", "5 files, 5.0 kB")
    ]
    assert left(*files, max_data_files=4) == [SkippedEntry("d/*.json", "data", "5 files, 5.0 kB")]
    assert len(kept(*files, max_file_bytes=1250, max_data_files=5)) == 5


def test_code_comes_before_data() -> None:
    files = [file(f"{number}.json") for number in range(9)]
    assert kept(file("a.sh"), *files, max_data_files=8) == {"a.sh"}


def test_small_groups_and_configs_come_first() -> None:
    files = (file("d/a.json", 30), file("b.yaml", 40), file("c.csv", 20))
    assert kept(*files, max_file_bytes=15) == {"b.yaml", "c.csv"}
    assert left(*files, max_file_bytes=15) == [SkippedEntry("d/a.json", "many", "30 B")]


def test_included_files_are_no_data() -> None:
    files = [CandidateFile(f"{number}.json", FileStamp(9, 1, 1, 1), 0o644) for number in range(5)]
    assert len(kept(*files, max_data_files=1)) == 5
