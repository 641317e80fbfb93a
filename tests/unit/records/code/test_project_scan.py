"""Tests of epochal.records.code.project_scan."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from epochal.records.code.code_manifest import SkippedEntry
from epochal.records.code.file_selection import SnapshotLimits
from epochal.records.code.project_scan import ProjectScanner

if TYPE_CHECKING:
    from collections.abc import Sequence


def fill(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n")
    return root


def look(root: Path, *, ignore: Sequence[str] = (), **limits: int) -> ProjectScanner:
    walk = ProjectScanner(root, ignore=ignore, limits=SnapshotLimits(**limits))
    walk.scan()
    return walk


def found(walk: ProjectScanner) -> set[str]:
    return {file.path for file in walk.found}


def left(walk: ProjectScanner) -> dict[str, SkippedEntry]:
    return {other.path: other for other in walk.others}


def test_files_of_all_folders_are_found(tmp_path: Path) -> None:
    walk = look(fill(tmp_path, "a.py", "b/c.yaml", "b/d/e.txt"))
    assert found(walk) == {"a.py", "b/c.yaml", "b/d/e.txt"}
    assert walk.others == []


def test_upper_levels_come_first(tmp_path: Path) -> None:
    walk = look(fill(tmp_path, "a/b/c.py", "z.py", "b/a.py"))
    assert [file.path for file in walk.found] == ["z.py", "b/a.py", "a/b/c.py"]


def test_ignore_files_are_heeded_also_inner_ones(tmp_path: Path) -> None:
    fill(tmp_path, "a.py", "out/b.py", "in/c.py", "in/d.py", "d.py")
    (tmp_path / ".gitignore").write_text("out/\n")
    (tmp_path / "in" / ".gitignore").write_text("d.py\n")
    walk = look(tmp_path)
    assert found(walk) == {"a.py", "in/c.py", "d.py"}
    assert left(walk)["out"].kind == left(walk)["in/d.py"].kind == "ignored"


def test_lines_of_the_config_outrank_all_others(tmp_path: Path) -> None:
    fill(tmp_path, "a.py", "out/b.py", "model.pt", ".hidden/c.py")
    (tmp_path / ".gitignore").write_text("out/\n")
    walk = look(tmp_path, ignore=["/a.py", "!out", "!*.pt", "!.hidden"])
    assert found(walk) == {"out/b.py", "model.pt", ".hidden/c.py"}


def test_ignore_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    root = fill(tmp_path / "root", "a.py")
    (tmp_path / "elsewhere").write_text("*\n")
    (root / ".gitignore").symlink_to(tmp_path / "elsewhere")
    assert found(look(root)) == {"a.py"}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("venv/pyvenv.cfg", "ignored"),
        ("env/conda-meta/history", "ignored"),
        ("runs/.epochal/index.db", "records"),
        ("sub/.git/HEAD", "submodule"),
    ],
)
def test_folders_that_are_another_thing_are_left_out(tmp_path: Path, name: str, kind: str) -> None:
    fill(tmp_path, "a.py", name, f"{name.partition('/')[0]}/code.py")
    walk = look(tmp_path)
    assert found(walk) == {"a.py"}
    assert left(walk)[name.partition("/")[0]].kind == kind


def test_record_of_a_run_is_no_code(tmp_path: Path) -> None:
    walk = look(fill(tmp_path, "a.py", "old/run.json", "old/status.json", "old/code/b.py"))
    assert found(walk) == {"a.py"}
    assert left(walk)["old"].kind == "records"


def test_folder_of_the_run_itself_is_no_code(tmp_path: Path) -> None:
    fill(tmp_path, "a.py", "mine/now/config/b.yaml")
    walk = ProjectScanner(tmp_path, limits=SnapshotLimits(), run_dir=tmp_path / "mine" / "now")
    walk.scan()
    assert found(walk) == {"a.py"}
    assert left(walk)["mine/now"].kind == "records"


def test_submodule_is_named_by_its_commit(tmp_path: Path) -> None:
    fill(tmp_path, "sub/a.py")
    (tmp_path / "sub" / ".git").write_text("gitdir: ../.git/modules/sub\n")
    inner = tmp_path / ".git" / "modules" / "sub"
    (inner / "refs").mkdir(parents=True)
    (inner / "HEAD").write_text("ref: refs/main\n")
    (inner / "refs" / "main").write_text("1234abcd\n")
    assert left(look(tmp_path))["sub"].text == "1234abcd"
    (inner / "HEAD").write_text("cafe\n")
    assert left(look(tmp_path))["sub"].text == "cafe"


def test_crowded_folder_is_data(tmp_path: Path) -> None:
    fill(tmp_path, "a.py", *(f"data/{i}.txt" for i in range(12)))
    walk = look(tmp_path, max_in_folder=10)
    assert found(walk) == {"a.py"}
    assert left(walk)["data"].kind == "many"


def test_crowded_top_folder_is_looked_at_in_part(tmp_path: Path) -> None:
    walk = look(fill(tmp_path, *(f"{i}.py" for i in range(12))), max_in_folder=10)
    assert len(walk.found) == 11
    assert left(walk)["."].kind == "many"


def test_looking_ends_after_many_names(tmp_path: Path) -> None:
    walk = look(fill(tmp_path, *(f"{i:02}/a.py" for i in range(30))), max_entries=40)
    assert 0 < len(walk.found) < 30
    assert len(walk.found) + len(walk.others) == 30


def test_deep_folders_are_named_only(tmp_path: Path) -> None:
    walk = look(fill(tmp_path, "a/b/c/d.py", "a/e.py"), max_depth=2)
    assert found(walk) == {"a/e.py"}
    assert left(walk)["a/b/c"].kind == "deep"


@pytest.mark.parametrize("where", ["home", "temporary", "top"])
def test_folder_of_everything_is_not_looked_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    fill(tmp_path, "a.py")
    if where == "home":
        monkeypatch.setenv("HOME", str(tmp_path))
    elif where == "temporary":
        monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    walk = look(Path("/") if where == "top" else tmp_path)
    assert walk.found == []
    assert left(walk)["."].text == "no project but a home, temporary or top folder"


def test_folder_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, "a.py", "closed/b.py")
    real = os.scandir

    def scan(path: Path) -> object:
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr("os.scandir", scan)
    walk = look(tmp_path)
    assert found(walk) == {"a.py"}
    assert left(walk)["closed"].text == "permission denied"


def test_files_of_one_kind_in_a_folder_are_a_group_and_code_is_in_none(tmp_path: Path) -> None:
    walk = look(fill(tmp_path, "a.py", "d/b.json", "d/c.json", "d/e.sh"))
    assert {file.path: file.group for file in walk.found} == {
        "a.py": "",
        "d/b.json": "d/*.json",
        "d/c.json": "d/*.json",
        "d/e.sh": "",
    }


def test_group_of_very_many_files_is_counted_only(tmp_path: Path) -> None:
    fill(tmp_path, "d/a.py", *(f"d/{i}.json" for i in range(12)))
    walk = look(tmp_path, max_data_files=10)
    assert found(walk) == {"d/a.py"}
    assert left(walk)["d/*.json"] == SkippedEntry("d/*.json", "data", "12 files")


@pytest.mark.parametrize("line", ["!*.json", "!d/**", "!d", "!/d/"])
def test_data_that_the_config_asks_for_is_in_no_group(tmp_path: Path, line: str) -> None:
    fill(tmp_path, *(f"d/e/{i}.json" for i in range(12)))
    walk = look(tmp_path, ignore=[line], max_data_files=10)
    assert len(walk.found) == 12
    assert {file.group for file in walk.found} == {""}


def test_folders_of_data_are_looked_at_last(tmp_path: Path) -> None:
    data = [f"data/{folder}/{i}.json" for folder in range(9) for i in range(25)]
    walk = look(fill(tmp_path, *data, "src/deep/er/a.py"), max_entries=100)
    assert "src/deep/er/a.py" in found(walk)
    assert left(walk)["data/8"].kind == "many"


@pytest.mark.parametrize("is_project_linked", [False, True])
def test_the_run_itself_is_left_out_also_behind_links(
    tmp_path: Path, *, is_project_linked: bool
) -> None:
    project, other = tmp_path / "project", tmp_path / "other"
    fill(project, "a.py", "out/now/status.json")
    other.symlink_to(project)
    root, run_dir = (other, project) if is_project_linked else (project, other)
    walk = ProjectScanner(root, limits=SnapshotLimits(), run_dir=run_dir / "out" / "now")
    walk.scan()
    assert found(walk) == {"a.py"}
