"""Tests of epochal.records.code.code_snapshot."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from typing import TYPE_CHECKING

import pytest

from epochal import durable
from epochal.records.code import CodeManifest, read_code_digest, read_file, read_manifest
from epochal.records.code import code_snapshot as module
from epochal.records.code.code_snapshot import CodeSnapshot
from epochal.records.code.file_content import read_content
from epochal.records.code.file_selection import SnapshotLimits

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = "ghp_" + "a1B2" * 10
FILES = {"a.py": "x = 1\n", "pack/b.py": "y = 2\n", "conf.yaml": "a: 1\n"}


@pytest.fixture(autouse=True)
def small_framework(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another package in the place of Epochal, which takes long to pack."""
    root = tmp_path / "installed" / "epochal"
    root.mkdir(parents=True)
    (root / "__init__.py").write_text("1\n")
    monkeypatch.setattr(module, "get_package_dir", lambda: root)
    return root


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
        os.utime(root / name, (1, 1))
    return root


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "runs" / ".epochal").mkdir(parents=True)
    return tmp_path / "runs" / ".epochal"


def manifest_of(run_dir: Path, attempt: int = 0) -> CodeManifest:
    manifest = read_manifest(run_dir, attempt)
    assert manifest is not None
    return manifest


def snapshot(
    project: Path, home: Path | None, name: str = "one", **options: object
) -> CodeSnapshot:
    run_dir = project.parent / "runs" / name
    return CodeSnapshot(project=project, run_dir=run_dir, home=home, **options)  # type: ignore[arg-type]


def test_a_run_has_read_only_copies_of_its_project(project: Path, home: Path) -> None:
    for store in (home, None):
        shot = snapshot(project, store, f"with {store}")
        taken = shot.take()
        assert taken.notes == ()
        assert {name: read_file(shot.run_dir, name) for name in FILES} == {
            name: text.encode() for name, text in FILES.items()
        }
        assert taken.digest == read_code_digest(shot.run_dir)
        copy = shot.run_dir / "code" / "project" / "pack" / "b.py"
        assert stat.S_IMODE(copy.stat().st_mode) == 0o444


def test_two_runs_share_equal_files(project: Path, home: Path) -> None:
    snapshot(project, home, "one").take()
    (project / "a.py").write_text("x = 3\n")
    snapshot(project, home, "two").take()
    one, two = (project.parent / "runs" / name / "code" for name in ("one", "two"))
    assert (one / "project/pack/b.py").samefile(two / "project/pack/b.py")
    assert next(one.glob("*.zip")).samefile(next(two.glob("*.zip")))
    assert (one / "project/a.py").read_text() == "x = 1\n"
    assert (two / "project/a.py").read_text() == "x = 3\n"


def test_a_moved_run_is_complete(project: Path, home: Path) -> None:
    shot = snapshot(project, home)
    shot.take()
    away = shot.run_dir.rename(project.parent / "away")
    durable.remove_tree(home, "test")
    assert read_file(away, "pack/b.py") == b"y = 2\n"


def test_only_changed_and_missing_contents_are_read_again(
    project: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("epochal.records.code.content_store.FRESH_NS", -(10**18))
    snapshot(project, home, "one").take()
    read: list[str] = []
    real = read_content

    def spy(path: Path, *, max_bytes: int) -> object:
        read.append(path.name)
        return real(path, max_bytes=max_bytes)

    monkeypatch.setattr("epochal.records.code.code_reader.read_content", spy)
    (project / "a.py").write_text("x = 30\n")
    snapshot(project, home, "two").take()
    assert read == ["a.py"]
    for path in (home / "code").glob("??/*"):
        path.unlink()
    snapshot(project, home, "three").take()
    for name in ("two", "three"):
        assert read_file(project.parent / "runs" / name, "pack/b.py") == b"y = 2\n"


def test_a_content_that_is_removed_from_the_store_is_written_to_the_run(
    project: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vanish(source: Path, target: Path) -> None:
        raise FileNotFoundError(errno.ENOENT, "gone")

    monkeypatch.setattr("epochal.records.code.content_store.FRESH_NS", -(10**18))
    monkeypatch.setattr(durable.system, "operations", durable.Operations(link=vanish))
    for name in ("one", "two"):  # the second does not read unchanged files at first
        shot = snapshot(project, home, name)
        assert shot.take().notes == ()
        assert read_file(shot.run_dir, "a.py") == b"x = 1\n"


def test_copies_have_no_secrets(project: Path, home: Path) -> None:
    (project / "a.py").write_text(f'hub = "{TOKEN}"\n')
    for name in (".env", "id_rsa"):
        (project / name).write_text(f"PASSWORD={TOKEN}\n")
    shot = snapshot(project, home, ignore=["!.env", "!id_rsa"])
    shot.take()
    manifest = manifest_of(shot.run_dir)
    assert manifest.by_path["a.py"].is_redacted
    assert {other.path: other.kind for other in manifest.others} == {
        ".env": "secret",
        "id_rsa": "secret",
    }
    files = [path.read_bytes() for path in (project.parent / "runs").rglob("*") if path.is_file()]
    assert not any(TOKEN.encode() in data for data in files)


def test_a_new_secret_is_removed_from_unchanged_files(
    project: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("epochal.records.code.content_store.FRESH_NS", -(10**18))
    (project / "a.py").write_text('word = "correct-horse-battery"\n')
    snapshot(project, home, "one").take()
    monkeypatch.setenv("MY_API_KEY", "correct-horse-battery")
    shot = snapshot(project, home, "two")
    shot.take()
    assert b"correct-horse" not in (read_file(shot.run_dir, "a.py") or b"correct-horse")


def test_names_that_differ_only_in_case_are_both_copied(project: Path, home: Path) -> None:
    (project / "A.py").write_text("x = 4\n")
    (project / "Pack").write_text("a file like a folder\n")
    shot = snapshot(project, home)
    shot.take()
    assert read_file(shot.run_dir, "a.py") == b"x = 1\n"
    assert read_file(shot.run_dir, "A.py") == b"x = 4\n"
    assert read_file(shot.run_dir, "Pack") == b"a file like a folder\n"
    places = [file.place.lower() for file in manifest_of(shot.run_dir).files]
    assert len(set(places)) == len(places)


def test_file_beyond_the_limit_is_named(project: Path, home: Path) -> None:
    shot = snapshot(project, home, limits=SnapshotLimits(max_files=2))
    shot.take()
    manifest = manifest_of(shot.run_dir)
    assert set(manifest.by_path) == {"a.py", "pack/b.py"}
    assert {other.path: other.kind for other in manifest.others} == {"conf.yaml": "many"}


def test_skipped_data_is_reported_once(project: Path, home: Path) -> None:
    for number in range(3):
        (project / f"{number}.json").write_text("{}\n")
    limits = SnapshotLimits(max_data_files=2)
    shot = snapshot(project, home, limits=limits)
    assert shot.take().notes == (
        "not in the record's copy of the code: *.json (3 files); "
        "to keep more: record.ignore: ['!*.json']",
    )
    assert [other.path for other in manifest_of(shot.run_dir).others] == ["*.json"]
    assert snapshot(project, home, "two", limits=limits).take().notes == ()
    (project / "big.csv").write_bytes(b" " * 100)
    (project / "conf.yaml").write_text("a: 1  # and more, so that it is another one\n")
    limits = SnapshotLimits(max_data_files=2, max_file_bytes=50)
    assert (
        "*.json (3 files), big.csv (100 B)"
        in (snapshot(project, home, "three", limits=limits).take().notes[0])
    )


def test_unreadable_files_are_reported_and_the_rest_is_copied(
    project: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = read_content

    def refuse(path: Path, *, max_bytes: int) -> object:
        if path.name == "a.py":
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, max_bytes=max_bytes)

    monkeypatch.setattr("epochal.records.code.code_reader.read_content", refuse)
    shot = snapshot(project, home)
    notes = shot.take().notes
    assert notes == ("the record's copy of the code is not complete: a.py (permission denied)",)
    assert read_file(shot.run_dir, "pack/b.py") == b"y = 2\n"


def test_files_that_cannot_be_written_are_reported(
    project: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: Path, target: Path) -> None:
        if "a.py" in str(target) or "aside" in str(target):
            raise OSError(errno.ENAMETOOLONG, "File name too long")
        os.link(source, target)

    monkeypatch.setattr(durable.system, "operations", durable.Operations(link=refuse))
    shot = snapshot(project, home)
    assert "a.py (" in shot.take().notes[0]
    assert read_file(shot.run_dir, "a.py") is None
    assert read_file(shot.run_dir, "pack/b.py") == b"y = 2\n"


def test_an_unreadable_epochal_is_not_copied(
    project: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "get_package_dir", lambda: tmp_path / "archive.zip" / "epochal")
    shot = snapshot(project, home, version="0.1")
    shot.take()
    framework = manifest_of(shot.run_dir).framework
    assert framework is not None
    assert (framework.version, framework.digest, framework.archive) == ("0.1", "", "")


def start(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def test_an_ignored_file_is_copied_when_it_is_imported(project: Path, home: Path) -> None:
    (project / "gen").mkdir()
    (project / "gen" / "made.py").write_text("z = 1\n")
    (project / ".gitignore").write_text("gen/\n")
    shot = snapshot(project, home)
    first = shot.take()
    assert read_file(shot.run_dir, "gen/made.py") is None
    second = shot.add_imported({"gen/made.py": start("z = 1\n"), "a.py": start("x = 1\n")})
    assert second.notes == ()
    assert read_file(shot.run_dir, "gen/made.py") == b"z = 1\n"
    assert second.digest == read_code_digest(shot.run_dir) != first.digest


def test_imports_that_differ_or_cannot_be_copied_are_reported(
    project: Path, home: Path, tmp_path: Path
) -> None:
    shot = snapshot(project, home)
    assert shot.add_imported({"a.py": "00"}).digest == ""  # there is no copy yet
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "c.py").write_text("c = 1\n")
    (project / "linked").symlink_to(tmp_path / "elsewhere")
    shot.take()
    incomplete = "the record's copy of the code is not complete: "
    notes = shot.add_imported({"a.py": start("x = 9\n"), "linked/c.py": start("c = 1\n")}).notes
    assert notes == (
        f"{incomplete}it changed while the run started: a.py",
        f"{incomplete}imported, but not kept: linked/c.py",
    )
    assert manifest_of(shot.run_dir).by_path["a.py"].note == "it changed while the run started"
    assert read_file(shot.run_dir, "linked/c.py") is None


def test_an_attempt_with_the_same_code_has_no_copy(project: Path, home: Path) -> None:
    shot = snapshot(project, home)
    (project / ".gitignore").write_text("gen.py\n")
    (project / "gen.py").write_text("z = 1\n")
    shot.take()
    first = shot.add_imported({"gen.py": start("z = 1\n")})
    again = snapshot(project, home, attempt=1).take()
    assert again.digest == first.digest
    assert not (shot.run_dir / "code" / "attempt-1").exists()


def test_an_attempt_with_other_code_or_another_epochal_has_its_copy(
    project: Path, home: Path, small_framework: Path
) -> None:
    shot = snapshot(project, home)
    shot.take()
    (project / "a.py").write_text("x = 5\n")
    for _ in range(2):  # the first one was refused and left its copy
        snapshot(project, home, attempt=1).take()
    assert read_file(shot.run_dir, "a.py") == b"x = 1\n"
    assert read_file(shot.run_dir, "a.py", attempt=1) == b"x = 5\n"
    assert [file.at for file in manifest_of(shot.run_dir, 1).files] == ["", "", ""]
    (small_framework / "__init__.py").write_text("2 + 2\n")
    snapshot(project, home, attempt=2).take()
    assert manifest_of(shot.run_dir, 1).framework != manifest_of(shot.run_dir, 2).framework


def test_data_is_copied_byte_for_byte_or_named(project: Path, home: Path) -> None:
    verses = b"by this token: rise\r\nand by that secret: fall\xff\n"
    (project / "verses.txt").write_bytes(verses)
    (project / "notes.txt").write_text(f"by this token: {TOKEN}\n")
    shot = snapshot(project, home)
    assert shot.take().notes == (
        "not in the record's copy of the code: notes.txt (it contains a secret)",
    )
    assert read_file(shot.run_dir, "verses.txt") == verses
    assert read_file(shot.run_dir, "notes.txt") is None


def test_what_the_config_includes_has_no_limit(project: Path, home: Path) -> None:
    names = ["big.txt", *(f"many/{number}.csv" for number in range(9))]
    for name in names:
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_bytes(b" " * 100)
    small = SnapshotLimits(
        max_file_bytes=50, max_bytes=200, max_files=5, max_entries=9, max_in_folder=7
    )
    shot = snapshot(project, home, limits=small)
    hint = "; to keep more: record.ignore: "
    note, _, ignore = shot.take().notes[0].partition(hint)
    assert note.endswith("big.txt (100 B), many (more than 7 names), pack (after 9 other names)")
    assert ignore == "['!big.txt', '!many', '!pack']"
    again = snapshot(project, home, "two", limits=small, ignore=["!big.txt", "!many"])
    assert again.take().notes == ()
    assert {read_file(again.run_dir, name) for name in names} == {b" " * 100}
    assert read_file(again.run_dir, "pack/b.py") == b"y = 2\n"
