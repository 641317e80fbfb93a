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


def test_list_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    write(tmp_path / "code")
    assert read_manifest(tmp_path) == WHOLE
    assert read_code_digest(tmp_path) == WHOLE.digest


def test_list_is_json_with_one_line_for_each_file() -> None:
    text = WHOLE.to_json().decode()
    assert json.loads(text)["files"][0]["path"] == "a.py"
    assert sum('"path"' in line for line in text.splitlines()) == 4
    assert all(line.count('"path"') <= 1 for line in text.splitlines())


def test_empty_list_is_json_too() -> None:
    assert json.loads(CodeManifest(project="", files=()).to_json())["files"] == []


def test_digest_changes_with_names_contents_rights_and_links() -> None:
    file, *rest = WHOLE.files
    others = [
        replace(WHOLE, files=(replace(file, path="c.py"), *rest)),
        replace(WHOLE, files=(replace(file, sha256="00"), *rest)),
        replace(WHOLE, files=(replace(file, mode=0o755), *rest)),
        replace(WHOLE, others=(SkippedEntry("l", "link", "/elsewhere"),)),
    ]
    assert len({WHOLE.digest, *(other.digest for other in others)}) == 5


def test_digest_does_not_depend_on_what_is_not_kept() -> None:
    assert replace(WHOLE, others=(SkippedEntry("l", "link", "/home"),)).digest == WHOLE.digest


def test_kept_file_is_read(tmp_path: Path) -> None:
    write(tmp_path / "code")
    assert read_file(tmp_path, "a.py") == b"a"
    assert read_file(tmp_path, "c.py") is None


def test_damaged_file_is_not_read(tmp_path: Path) -> None:
    write(tmp_path / "code")
    (tmp_path / "code" / "project" / "a.py").write_bytes(b"b")
    assert read_file(tmp_path, "a.py") is None
    assert read_file(tmp_path, "b.py") is None  # it is listed, but gone


def test_kept_file_that_became_a_link_is_not_followed(tmp_path: Path) -> None:
    write(tmp_path / "code")
    (tmp_path / "outside").write_bytes(b"a")
    (tmp_path / "code" / "project" / "a.py").unlink()
    (tmp_path / "code" / "project" / "a.py").symlink_to(tmp_path / "outside")
    assert read_file(tmp_path, "a.py") is None


def test_run_without_code_has_no_list(tmp_path: Path) -> None:
    assert read_manifest(tmp_path) is None
    assert read_code_digest(tmp_path) == ""


def test_damaged_list_is_none(tmp_path: Path) -> None:
    for text in [
        "",
        "[]",
        "{}",
        '{"project": "", "files": 3, "others": []}',
        '{"project": "", "files": []}',
    ]:
        (tmp_path / "code").mkdir(exist_ok=True)
        (tmp_path / "code" / "manifest.json").write_text(text)
        assert read_manifest(tmp_path) is None


def test_list_that_leads_out_of_the_folder_is_none(tmp_path: Path) -> None:
    for names in [{"path": "../a"}, {"path": "/a"}, {"path": "a", "at": "../../a"}, {"size": 1}]:
        (tmp_path / "code").mkdir(exist_ok=True)
        file = {"sha256": "", "size": 1, "mode": 1, **names}
        text = json.dumps({"project": "", "files": [file], "others": []})
        (tmp_path / "code" / "manifest.json").write_text(text)
        assert read_manifest(tmp_path) is None


def test_attempts_without_code_of_their_own_have_that_of_an_earlier_one(tmp_path: Path) -> None:
    write(tmp_path / "code")
    later = replace(WHOLE, files=WHOLE.files[:1])
    write(get_attempt_dir(tmp_path, 2), later)
    assert find_code_dir(tmp_path, 1) == tmp_path / "code"
    assert find_code_dir(tmp_path, 4) == tmp_path / "code" / "attempt-2"
    assert read_manifest(tmp_path) == read_manifest(tmp_path, 1) == WHOLE
    assert read_manifest(tmp_path, 2) == read_manifest(tmp_path, 7) == later
