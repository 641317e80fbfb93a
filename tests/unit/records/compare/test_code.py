"""Tests of epochal.records.compare.code."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

from comparing import keep_code, make_run
from epochal.records.compare import code as module
from epochal.records.compare.code import CodeComparison, compare_code, diff_texts, is_binary

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pytest

    from epochal.records.folder.reader import RunRecord

TASK = b"import torch\n\n\ndef forward(x):\n    return x\n"


def compared(tmp_path: Path, *trees: Mapping[str, bytes]) -> CodeComparison:
    records = []
    for place, tree in enumerate(trees):
        record = make_run(tmp_path / str(place))
        keep_code(record, tree)
        records.append(record)
    return compare_code(records)


def test_equal_code_has_no_differences(tmp_path: Path) -> None:
    found = compared(tmp_path, {"task.py": TASK, "a/b.py": b""}, {"task.py": TASK, "a/b.py": b""})
    assert (found.files, found.num_same, found.source) == ((), 2, "snapshot")


def test_a_changed_file_has_a_unified_diff(tmp_path: Path) -> None:
    changed = TASK.replace(b"return x", b"x = x + 1\n    return x")
    [file] = compared(tmp_path, {"task.py": TASK}, {"task.py": changed}).files
    assert file.lines == (
        "--- A/task.py",
        "+++ B/task.py",
        "@@ -2,4 +2,5 @@",
        " ",
        " ",
        " def forward(x):",
        "+    x = x + 1",
        "     return x",
    )
    assert (file.path, file.added, file.removed, file.note) == ("task.py", 1, 0, "")


def test_added_and_removed_files_are_shown(tmp_path: Path) -> None:
    found = compared(tmp_path, {"old.py": b"a\nb\n"}, {"new.py": b"c\n"})
    new, old = found.files
    assert (new.versions[0], new.added, new.removed) == (None, 1, 0)
    assert (old.versions[1], old.added, old.removed) == (None, 0, 2)


def test_lines_that_look_like_the_head_of_a_diff_are_counted(tmp_path: Path) -> None:
    [file] = compared(tmp_path, {"a.txt": b"x\n"}, {"a.txt": b"++ y\n-- z\n"}).files
    assert (file.added, file.removed) == (2, 1)


def test_binary_files_are_compared_by_digest(tmp_path: Path) -> None:
    [file] = compared(tmp_path, {"w.bin": b"\0\1"}, {"w.bin": b"\0\2\3"}).files
    assert file.note == "binary"
    assert file.lines == ()
    before, after = file.versions
    assert before is not None
    assert after is not None
    assert (before.size, after.size) == (2, 3)
    assert before.digest != after.digest


def test_large_files_are_compared_by_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("MAX_BYTES", "MAX_LINES"):
        with monkeypatch.context() as patch:
            patch.setattr(module, limit, 3)
            [file] = compared(tmp_path / limit, {"a": b"1\n2\n3\n4\n"}, {"a": b"1\n"}).files
        assert (file.note, file.lines) == ("large", ()), limit


def test_a_damaged_copy_is_reported(tmp_path: Path) -> None:
    one, other = make_run(tmp_path / "a"), make_run(tmp_path / "b")
    keep_code(one, {"task.py": TASK})
    keep_code(other, {"task.py": b"x\n"})
    (other.path / "code" / "project" / "task.py").write_bytes(b"y\n")
    [file] = compare_code([one, other]).files
    assert file.note == "the copy is damaged"


def test_links_are_compared_by_target(tmp_path: Path) -> None:
    one, other = make_run(tmp_path / "a"), make_run(tmp_path / "b")
    keep_code(one, {}, links={"data": "/x", "same": "/z"})
    keep_code(other, {}, links={"data": "/y", "same": "/z"})
    [file] = compare_code([one, other]).files
    assert file.note == "link"
    assert [version.digest for version in file.versions if version] == ["-> /x", "-> /y"]


def test_other_permissions_are_a_difference(tmp_path: Path) -> None:
    one, other = make_run(tmp_path / "a"), make_run(tmp_path / "b")
    for record, mode in ((one, 0o644), (other, 0o755)):
        keep_code(record, {"go.sh": b"x\n"})
        listed = record.path / "code" / "manifest.json"
        listed.write_text(listed.read_text().replace(f":{0o644}", f":{mode}"))
    [file] = compare_code([one, other]).files
    assert file.note == "other rights"


def test_three_runs_are_compared_without_lines(tmp_path: Path) -> None:
    found = compared(tmp_path, {"a.py": b"1\n"}, {"a.py": b"2\n"}, {})
    [file] = found.files
    assert len(file.versions) == 3
    assert file.versions[2] is None
    assert file.lines == ()


def test_the_code_of_the_last_attempt_is_compared(tmp_path: Path) -> None:
    one = make_run(tmp_path / "a", attempts=[{"attempt": 0}, {"attempt": 1}])
    other = make_run(tmp_path / "b")
    keep_code(one, {"task.py": b"old\n"})
    keep_code(other, {"task.py": b"new\n"})
    (one.path / "code" / "attempt-1").mkdir()
    for name in ("manifest.json", "project"):
        (other.path / "code" / name).rename(one.path / "code" / "attempt-1" / name)
    keep_code(other, {"task.py": b"new\n"})
    assert compare_code([one, other]).files == ()


def test_another_version_of_epochal_is_reported_with_its_files(tmp_path: Path) -> None:
    records = [make_run(tmp_path / "a"), make_run(tmp_path / "b")]
    for record, text in zip(records, "xy", strict=True):
        keep_code(record, {"task.py": TASK}, epochal=text * 64)
        archive(record, loop=text, same="z", **({"new": ""} if text == "y" else {}))
    found = compare_code(records)
    assert found.epochal == ("1.0 xxxxxxxxxxxx", "1.0 yyyyyyyyyyyy")
    assert found.epochal_files == ("epochal/loop.py", "epochal/new.py")
    (records[1].path / "code" / "epochal.zip").write_bytes(b"?")
    found = compare_code(records)
    assert (len(found.epochal), found.epochal_files) == (2, ())


def archive(record: RunRecord, **files: str) -> None:
    """Keep files of Epochal as ``keep_code`` says that they are kept."""
    with zipfile.ZipFile(record.path / "code" / "epochal.zip", "w") as target:
        for name, text in files.items():
            target.writestr(f"epochal/{name}.py", text)


def imported(**digests: str) -> list[dict[str, object]]:
    code = {f"{name}.py": digest for name, digest in digests.items()}
    return [{"attempt": 0, "code": code}]


def test_without_a_snapshot_imports_are_compared_by_digest(tmp_path: Path) -> None:
    one = make_run(tmp_path / "a", attempts=imported(task="aa", model="cc"))
    other = make_run(tmp_path / "b", attempts=imported(task="bb", model="cc"))
    keep_code(other, {"task.py": TASK})
    found = compare_code([one, other])
    assert (found.source, found.num_same) == ("imports", 1)
    [file] = found.files
    assert (file.path, file.note) == ("task.py", "only its digest was kept")


def test_runs_without_snapshot_and_imports_have_unknown_code(tmp_path: Path) -> None:
    one, other = make_run(tmp_path / "a", attempts=imported(task="aa")), make_run(tmp_path / "b")
    found = compare_code([one, other])
    assert (found.source, found.files) == ("nothing", ())


def test_binary_content_is_recognised() -> None:
    texts = [b"", b"x = 1\n", "größer\n".encode(), "größer genug\n".encode("latin-1")]
    binaries = [b"\0", b"a\0b", bytes(range(256)) * 4]
    assert [content for content in (*texts, *binaries) if is_binary(content)] == binaries


def test_other_line_ends_are_shown() -> None:
    lines, _ = diff_texts(b"a\nb\n", b"a\r\nb", "x")
    assert lines[3:] == ["-a", "-b", "+a^M", "+b (no line end)"]
    assert diff_texts(b"", b"", "x") == ([], "empty")


def test_the_git_state_is_compared(tmp_path: Path) -> None:
    one = make_run(tmp_path / "a", machine={"git": {"commit": "aa", "dirty": False}})
    other = make_run(tmp_path / "b", machine={"git": {"commit": "aa", "dirty": True}})
    assert [found.key for found in compare_code([one, other]).git.differences] == ["dirty"]
