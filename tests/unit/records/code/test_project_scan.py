"""Tests of epochal.records.code.project_scan."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from epochal.records.code.code_manifest import SkippedEntry
from epochal.records.code.file_selection import SnapshotLimits
from epochal.records.code.project_scan import ProjectScanner

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest


def fill(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n")
    return root


def scan(root: Path, *, ignore: Sequence[str] = (), **limits: int) -> ProjectScanner:
    scanner = ProjectScanner(root, ignore=ignore, limits=SnapshotLimits(**limits))
    scanner.scan()
    return scanner


def found(scanner: ProjectScanner) -> set[str]:
    return {file.path for file in scanner.found}


def left(scanner: ProjectScanner) -> dict[str, SkippedEntry]:
    return {other.path: other for other in scanner.others}


def test_files_of_all_folders_are_found(tmp_path: Path) -> None:
    scanner = scan(fill(tmp_path, "a.py", "b/c.yaml", "b/d/e.txt"))
    assert found(scanner) == {"a.py", "b/c.yaml", "b/d/e.txt"}
    assert scanner.others == []


def test_upper_levels_come_first(tmp_path: Path) -> None:
    scanner = scan(fill(tmp_path, "a/b/c.py", "z.py", "b/a.py"))
    assert [file.path for file in scanner.found] == ["z.py", "b/a.py", "a/b/c.py"]


def test_gitignore_files_of_all_folders_apply(tmp_path: Path) -> None:
    fill(tmp_path, "a.py", "out/b.py", "in/c.py", "in/d.py", "d.py")
    (tmp_path / ".gitignore").write_text("out/\n")
    (tmp_path / "in" / ".gitignore").write_text("d.py\n")
    scanner = scan(tmp_path)
    assert found(scanner) == {"a.py", "in/c.py", "d.py"}
    assert left(scanner)["out"].kind == left(scanner)["in/d.py"].kind == "ignored"


def test_lines_of_the_config_outrank_all_others(tmp_path: Path) -> None:
    fill(tmp_path, "a.py", "out/b.py", "model.pt", ".hidden/c.py")
    (tmp_path / ".gitignore").write_text("out/\n")
    scanner = scan(tmp_path, ignore=["/a.py", "!out", "!*.pt", "!.hidden"])
    assert found(scanner) == {"out/b.py", "model.pt", ".hidden/c.py"}


def test_ignore_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    root = fill(tmp_path / "root", "a.py")
    (tmp_path / "elsewhere").write_text("*\n")
    (root / ".gitignore").symlink_to(tmp_path / "elsewhere")
    assert found(scan(root)) == {"a.py"}


def test_environments_records_and_submodules_are_skipped(tmp_path: Path) -> None:
    kinds = {
        "venv/pyvenv.cfg": "ignored",
        "env/conda-meta/history": "ignored",
        "runs/.epochal/index.db": "records",
        "sub/.git/HEAD": "submodule",
        "old/run.json": "records",
    }
    folders = {name.partition("/")[0]: kind for name, kind in kinds.items()}
    fill(tmp_path, "a.py", "old/status.json", *kinds, *(f"{folder}/code.py" for folder in folders))
    scanner = scan(tmp_path)
    assert found(scanner) == {"a.py"}
    assert {path: entry.kind for path, entry in left(scanner).items()} == folders


def test_ignored_folders_of_runs_are_records(tmp_path: Path) -> None:
    fill(tmp_path, "runs/.epochal/index.db", "out/now/run.json", "data/a.csv")
    (tmp_path / ".gitignore").write_text("runs/\nout/\ndata/\n")
    run_dir = tmp_path / "out" / "now"
    scanner = ProjectScanner(tmp_path, limits=SnapshotLimits(), run_dir=run_dir)
    scanner.scan()
    kinds = {path: entry.kind for path, entry in left(scanner).items()}
    assert kinds == {
        "runs": "records",
        "out": "records",
        "data": "ignored",
        ".gitignore": "ignored",
    }


def test_a_submodule_has_its_commit(tmp_path: Path) -> None:
    fill(tmp_path, "sub/a.py")
    (tmp_path / "sub" / ".git").write_text("gitdir: ../.git/modules/sub\n")
    inner = tmp_path / ".git" / "modules" / "sub"
    (inner / "refs").mkdir(parents=True)
    (inner / "HEAD").write_text("ref: refs/main\n")
    (inner / "refs" / "main").write_text("1234abcd\n")
    assert left(scan(tmp_path))["sub"].text == "1234abcd"
    (inner / "HEAD").write_text("cafe\n")
    assert left(scan(tmp_path))["sub"].text == "cafe"


def test_a_folder_with_many_names_is_data(tmp_path: Path) -> None:
    fill(tmp_path, "a.py", *(f"data/{i}.txt" for i in range(12)))
    scanner = scan(tmp_path, max_in_folder=10)
    assert found(scanner) == {"a.py"}
    assert left(scanner)["data"].kind == "many"


def test_a_top_folder_with_many_names_is_scanned_in_part(tmp_path: Path) -> None:
    scanner = scan(fill(tmp_path, *(f"{i}.py" for i in range(12))), max_in_folder=10)
    assert len(scanner.found) == 11
    assert left(scanner)["."].kind == "many"


def test_the_scan_ends_after_many_names(tmp_path: Path) -> None:
    scanner = scan(fill(tmp_path, *(f"{i:02}/a.py" for i in range(30))), max_entries=40)
    assert 0 < len(scanner.found) < 30
    assert len(scanner.found) + len(scanner.others) == 30


def test_deep_folders_are_skipped(tmp_path: Path) -> None:
    scanner = scan(fill(tmp_path, "a/b/c/d.py", "a/e.py"), max_depth=2)
    assert found(scanner) == {"a/e.py"}
    assert left(scanner)["a/b/c"].kind == "deep"


def test_a_home_temporary_or_top_folder_is_not_scanned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, "a.py")
    assert found(scan(tmp_path)) == {"a.py"}
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path.parent))
    for root in (tmp_path, tmp_path.parent, Path("/")):
        scanner = scan(root)
        assert scanner.found == [], root
        assert left(scanner)["."].text == "not a project, but a home, temporary or top folder"


def test_an_unreadable_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, "a.py", "closed/b.py")
    real = os.scandir

    def refuse(path: Path) -> object:
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr("os.scandir", refuse)
    scanner = scan(tmp_path)
    assert found(scanner) == {"a.py"}
    assert left(scanner)["closed"].text == "permission denied"


def test_similar_files_form_a_group_and_code_does_not(tmp_path: Path) -> None:
    scanner = scan(fill(tmp_path, "a.py", "d/b.json", "d/c.json", "d/e.sh"))
    assert {file.path: file.group for file in scanner.found} == {
        "a.py": "",
        "d/b.json": "d/*.json",
        "d/c.json": "d/*.json",
        "d/e.sh": "",
    }


def test_a_group_of_many_files_is_only_counted(tmp_path: Path) -> None:
    fill(tmp_path, "d/a.py", *(f"d/{i}.json" for i in range(12)))
    scanner = scan(tmp_path, max_data_files=10)
    assert found(scanner) == {"d/a.py"}
    assert left(scanner)["d/*.json"] == SkippedEntry("d/*.json", "data", "12 files")


def test_data_that_the_config_includes_is_in_no_group(tmp_path: Path) -> None:
    fill(tmp_path, *(f"d/e/{i}.json" for i in range(12)))
    for line in ("!*.json", "!d/**", "!d", "!/d/"):
        scanner = scan(tmp_path, ignore=[line], max_data_files=10)
        assert len(scanner.found) == 12, line
        assert {file.group for file in scanner.found} == {""}, line


def test_folders_of_data_are_scanned_last(tmp_path: Path) -> None:
    data = [f"data/{folder}/{i}.json" for folder in range(9) for i in range(25)]
    scanner = scan(fill(tmp_path, *data, "src/deep/er/a.py"), max_entries=100)
    assert "src/deep/er/a.py" in found(scanner)
    assert left(scanner)["data/8"].kind == "many"


def test_the_folder_of_the_run_is_skipped_even_behind_links(tmp_path: Path) -> None:
    project, other = tmp_path / "project", tmp_path / "other"
    fill(project, "a.py", "out/now/config/b.yaml")
    other.symlink_to(project)
    for root, run_dir in ((project, project), (other, project), (project, other)):
        scanner = ProjectScanner(root, limits=SnapshotLimits(), run_dir=run_dir / "out" / "now")
        scanner.scan()
        assert found(scanner) == {"a.py"}
        assert left(scanner)["out/now"].kind == "records"
