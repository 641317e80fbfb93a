"""Tests of epochal.records.code.code_manifest."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from epochal.records.code import read_code_digest, read_file, read_manifest
from epochal.records.code.code_manifest import (
    CodeFile,
    CodeManifest,
    Framework,
    SkippedEntry,
    find_code_dir,
    get_attempt_dir,
)

if TYPE_CHECKING:
    from pathlib import Path

A = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"  # of b"a"
WHOLE = CodeManifest(
    project="/p",
    files=(CodeFile("a.py", A, 1, 0o644), CodeFile("b.py", A, 1, 0o755, is_redacted=True)),
    others=(SkippedEntry("big", "large", "9 bytes"), SkippedEntry("l", "link", "/home")),
    framework=Framework("0.1", "12ab", "epochal-12ab.zip"),
    left_out=3,
)


def write(folder: Path, manifest: CodeManifest = WHOLE) -> None:
    (folder / "project").mkdir(parents=True)
    (folder / "manifest.json").write_bytes(manifest.to_json())
    (folder / "project" / "a.py").write_bytes(b"a")


def test_a_manifest_is_read_as_written(tmp_path: Path) -> None:
    write(tmp_path / "code")
    assert read_manifest(tmp_path) == WHOLE
    assert read_code_digest(tmp_path) == WHOLE.digest


def test_a_manifest_is_json_with_one_line_for_each_file() -> None:
    text = WHOLE.to_json().decode()
    assert json.loads(text)["files"][0]["path"] == "a.py"
    assert sum('"path"' in line for line in text.splitlines()) == 4
    assert all(line.count('"path"') <= 1 for line in text.splitlines())
    assert json.loads(CodeManifest(project="", files=()).to_json())["files"] == []


def test_the_digest_depends_on_names_contents_permissions_and_links() -> None:
    file, *rest = WHOLE.files
    others = [
        replace(WHOLE, files=(replace(file, path="c.py"), *rest)),
        replace(WHOLE, files=(replace(file, sha256="00"), *rest)),
        replace(WHOLE, files=(replace(file, mode=0o755), *rest)),
        replace(WHOLE, others=(SkippedEntry("l", "link", "/elsewhere"),)),
    ]
    assert len({WHOLE.digest, *(other.digest for other in others)}) == 5


def test_the_digest_does_not_depend_on_skipped_files() -> None:
    assert replace(WHOLE, others=(SkippedEntry("l", "link", "/home"),)).digest == WHOLE.digest


def test_only_undamaged_copies_are_read(tmp_path: Path) -> None:
    write(tmp_path / "code")
    copy = tmp_path / "code" / "project" / "a.py"
    assert read_file(tmp_path, "a.py") == b"a"
    assert read_file(tmp_path, "b.py") is None  # listed, but missing
    assert read_file(tmp_path, "c.py") is None
    copy.rename(tmp_path / "outside")
    copy.symlink_to(tmp_path / "outside")
    assert read_file(tmp_path, "a.py") is None
    copy.unlink()
    copy.write_bytes(b"b")
    assert read_file(tmp_path, "a.py") is None


def test_a_missing_or_damaged_manifest_is_none(tmp_path: Path) -> None:
    assert read_manifest(tmp_path) is None
    assert read_code_digest(tmp_path) == ""
    (tmp_path / "code").mkdir()
    entries = [{"path": "../a"}, {"path": "/a"}, {"path": "a", "at": "../../a"}, {"size": 1}]
    files = [{"sha256": "", "size": 1, "mode": 1, **names} for names in entries]
    for text in (
        *(
            "",
            "[]",
            "{}",
            '{"project": "", "files": 3, "others": []}',
            '{"project": "", "files": []}',
        ),
        *(json.dumps({"project": "", "files": [file], "others": []}) for file in files),
    ):
        (tmp_path / "code" / "manifest.json").write_text(text)
        assert read_manifest(tmp_path) is None, text


def test_an_attempt_without_code_has_that_of_an_earlier_one(tmp_path: Path) -> None:
    write(tmp_path / "code")
    later = replace(WHOLE, files=WHOLE.files[:1])
    write(get_attempt_dir(tmp_path, 2), later)
    assert find_code_dir(tmp_path, 1) == tmp_path / "code"
    assert find_code_dir(tmp_path, 4) == tmp_path / "code" / "attempt-2"
    assert read_manifest(tmp_path) == read_manifest(tmp_path, 1) == WHOLE
    assert read_manifest(tmp_path, 2) == read_manifest(tmp_path, 7) == later
