"""Tests of epochal.records.code.restore."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from epochal.errors import ConfigError, RecordError
from epochal.records.code import code_snapshot as snapshots
from epochal.records.code import read_manifest, unpack_limits
from epochal.records.code import restore as module
from epochal.records.code.code_snapshot import CodeSnapshot
from epochal.records.code.framework import digest_package
from epochal.records.code.restore import FRAMEWORK_DIR, restore_code

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another package in the place of Epochal, which takes long to pack."""
    root = tmp_path / "installed" / "epochal"
    root.mkdir(parents=True)
    (root / "__init__.py").write_text("1\n")
    monkeypatch.setattr(snapshots, "get_package_dir", lambda: root)
    monkeypatch.setattr(module, "get_package_dir", lambda: root)
    return root


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "pack").mkdir(parents=True)
    (root / "a.py").write_text("x = 1\n")
    (root / "pack" / "run.sh").write_text("echo\n")
    (root / "pack" / "run.sh").chmod(0o755)
    return root


@pytest.fixture
def run_dir(project: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    (folder / "config").mkdir(parents=True)
    (folder / "config" / "expanded.toml").write_text("seed = 1\n")
    CodeSnapshot(project=project, run_dir=folder).take()
    return folder


def test_a_restored_config_is_no_part_of_the_project(run_dir: Path, tmp_path: Path) -> None:
    done = restore_code(run_dir, tmp_path / "out")
    again = tmp_path / "again"
    taken = CodeSnapshot(project=done.dir, run_dir=again).take()
    assert taken.digest == done.manifest.digest
    manifest = read_manifest(again)
    assert manifest is not None
    assert {one.path for one in manifest.others} == {".epochal-restored", "restored.toml"}


def test_code_and_config_are_restored(run_dir: Path, project: Path, tmp_path: Path) -> None:
    (project / "a.py").write_text("x = 2\n")
    done = restore_code(run_dir, tmp_path / "out" / "deep")
    assert (done.dir / "a.py").read_text() == "x = 1\n"
    assert done.config is not None
    assert done.config.read_text() == "seed = 1\n"
    assert (done.lost, done.others, done.framework_dir) == ((), (), None)


def test_restored_files_are_writable_and_executable(run_dir: Path, tmp_path: Path) -> None:
    done = restore_code(run_dir, tmp_path / "out")
    assert stat.S_IMODE((done.dir / "a.py").stat().st_mode) == 0o644
    assert stat.S_IMODE((done.dir / "pack" / "run.sh").stat().st_mode) == 0o755
    (done.dir / "a.py").write_text("x = 3\n")
    assert (run_dir / "code" / "project" / "a.py").read_text() == "x = 1\n"


def test_a_folder_that_is_not_empty_is_refused(
    run_dir: Path, project: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="exists already and is not empty"):
        restore_code(run_dir, project)
    with pytest.raises(ConfigError, match="exists already"):
        restore_code(run_dir, project / "a.py")
    (tmp_path / "empty").mkdir()
    assert restore_code(run_dir, tmp_path / "empty").lost == ()


def test_files_that_differ_from_the_manifest_are_named_and_refused(
    run_dir: Path, project: Path, tmp_path: Path
) -> None:
    def change() -> None:
        (copy / "a.py").chmod(0o644)
        (copy / "a.py").write_text("x = 7\n")

    def link() -> None:
        (copy / "a.py").unlink()
        (copy / "a.py").symlink_to(project / "a.py")

    def move() -> None:
        copy.rename(tmp_path / "moved")
        copy.symlink_to(tmp_path / "moved")

    code, copy = run_dir / "code", run_dir / "code" / "project"
    table: dict[str, Callable[[], object]] = {
        r"1 file is not as recorded: project/a.py \(changed\)\n": change,
        r"1 file is not as recorded: project/a.py \(missing\)\n": (copy / "a.py").unlink,
        r": project/a.py \(changed\)\n": link,
        r": project/pack/b.py \(added\)\n": (copy / "pack" / "b.py").touch,
        r": project \(added\)\n": move,
        r": aside/x \(added\)\n": lambda: (
            (code / "aside" / "x").mkdir(parents=True) or (code / "aside" / "x" / "y").touch()
        ),
        r": manifest.json \(changed\)\n": lambda: _edit_manifest(run_dir, digest="0"),
    }
    for message, damage in table.items():
        shutil.copytree(run_dir, tmp_path / "whole", symlinks=True)
        damage()
        with pytest.raises(RecordError, match=message.replace("aside/x ", "aside/x/y ")):
            restore_code(run_dir, tmp_path / "out")
        assert not (tmp_path / "out").exists(), message
        shutil.rmtree(run_dir)
        (tmp_path / "whole").rename(run_dir)
    (copy / ".a.py.12-ab.tmp").touch()
    (code / "uncommitted.diff").touch()
    assert restore_code(run_dir, tmp_path / "out").lost == ()


def test_files_that_are_as_recorded_are_restored_on_request(run_dir: Path, tmp_path: Path) -> None:
    kept = run_dir / "code" / "project" / "a.py"
    kept.chmod(0o644)
    kept.write_text("x = 7\n")
    done = restore_code(run_dir, tmp_path / "out", is_partial=True)
    assert done.lost == ("a.py",)
    assert (done.dir / "pack" / "run.sh").is_file()
    assert not (done.dir / "a.py").exists()


def test_files_that_are_not_as_they_were_are_named(
    run_dir: Path, project: Path, tmp_path: Path
) -> None:
    assert restore_code(run_dir, tmp_path / "first").altered == {}
    (project / "hub.py").write_text('hub = "ghp_' + "a1B2" * 10 + '"\n')
    (run_dir / "config" / "expanded.toml").write_text('password = "<redacted>"\n')
    shot = CodeSnapshot(project=project, run_dir=run_dir)
    shot.take()
    shot.add_imported({"a.py": "00"})
    assert restore_code(run_dir, tmp_path / "out").altered == {
        "a.py": "it changed while the run started",
        "hub.py": "secrets removed",
        "restored.toml": "secrets removed",
    }


def test_only_links_inside_of_the_folder_are_restored(project: Path, tmp_path: Path) -> None:
    (project / "pack" / "same.py").symlink_to("../a.py")
    (project / "out").symlink_to("../elsewhere")
    (project / "home").symlink_to("/root")
    (project / "loop").symlink_to("loop")
    CodeSnapshot(project=project, run_dir=tmp_path / "run").take()
    done = restore_code(tmp_path / "run", tmp_path / "back")
    assert (done.dir / "pack" / "same.py").read_text() == "x = 1\n"
    assert (done.dir / "loop").is_symlink()
    assert [(one.path, one.text) for one in done.others] == [
        ("home", "/root"),
        ("out", "../elsewhere"),
    ]
    assert not (done.dir / "home").is_symlink()


def test_another_version_of_epochal_is_restored(
    run_dir: Path, installed: Path, tmp_path: Path
) -> None:
    before = digest_package(installed)
    (installed / "__init__.py").write_text("2 + 2\n")
    done = restore_code(run_dir, tmp_path / "out")
    assert done.framework_dir == tmp_path / "out" / FRAMEWORK_DIR
    assert digest_package(done.framework_dir / "epochal") == before


def test_a_lost_version_of_epochal_is_named(run_dir: Path, installed: Path, tmp_path: Path) -> None:
    (installed / "__init__.py").write_text("2 + 2\n")
    archive = next((run_dir / "code").glob("*.zip"))
    archive.unlink()
    assert restore_code(run_dir, tmp_path / "out").lost == (archive.name,)


def test_the_code_of_an_attempt_is_restored(run_dir: Path, project: Path, tmp_path: Path) -> None:
    (project / "a.py").write_text("x = 2\n")
    CodeSnapshot(project=project, run_dir=run_dir, attempt=1).take()
    assert (restore_code(run_dir, tmp_path / "0").dir / "a.py").read_text() == "x = 1\n"
    assert (restore_code(run_dir, tmp_path / "1", attempt=1).dir / "a.py").read_text() == "x = 2\n"


def test_the_config_gets_another_name_if_it_exists(project: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    (run_dir / "config").mkdir(parents=True)
    (run_dir / "config" / "expanded.yaml").write_text("seed: 1\n")
    (project / "restored.yaml").write_text("seed: 0\n")
    CodeSnapshot(project=project, run_dir=run_dir).take()
    done = restore_code(run_dir, tmp_path / "out")
    assert done.config == done.dir / "restored-run.yaml"
    assert (done.dir / "restored.yaml").read_text() == "seed: 0\n"


def test_code_is_restored_without_a_config(run_dir: Path, tmp_path: Path) -> None:
    (run_dir / "config" / "expanded.toml").unlink()
    assert restore_code(run_dir, tmp_path / "out").config is None


def test_chains_of_links_do_not_escape(run_dir: Path, tmp_path: Path) -> None:
    links = [("s/t/x", "../.."), ("z", "s/t/x/.."), ("z/evil", "s"), ("restored.toml", "nowhere")]
    for ordered in (links, links[::-1], [links[1], links[0], links[2]]):
        _edit_manifest(run_dir, others=[{"path": a, "kind": "link", "text": b} for a, b in ordered])
        before = {path.name for path in tmp_path.iterdir()}
        target = tmp_path / f"back-{len(before)}"
        restore_code(run_dir, target, is_partial=True)
        assert {path.name for path in tmp_path.iterdir()} == {*before, target.name}
        assert not (target / "z" / target.name).exists()


def test_a_missing_or_damaged_manifest_is_refused(run_dir: Path, tmp_path: Path) -> None:
    entry = {"path": "a", "sha256": "", "size": 1, "mode": 1}
    changes: tuple[dict[str, object], ...] = (
        {"path": 5}, {"path": "a\0b"}, {"path": "/a"}, {"path": "../a"}, {"path": "a/../../b"},
        {"path": "\ud800"}, {"at": "../x"}, {"at": "/etc/passwd"}, {"sha256": 3}, {"mode": "x"},
        {"mode": 1.5}, {"size": -1}, {"size": 1e999}, {"size": None}, {"size": [1]},
    )  # fmt: skip
    for files in ("abc", ["abc"], *([entry | change] for change in changes)):
        _edit_manifest(run_dir, files=files)
        with pytest.raises(
            RecordError, match="has no copy of its code, or one whose list is damaged"
        ):
            restore_code(run_dir, tmp_path / "out")
    with pytest.raises(RecordError, match="has no copy of its code"):
        restore_code(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_manifests_that_would_write_something_else_write_nothing(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = b"x = 1\n"
    entry = {"sha256": hashlib.sha256(data).hexdigest(), "size": 6, "mode": 0o644}
    entry |= {"at": "project/a.py"}
    one = {"path": "a.py"}
    table: dict[str, tuple[list[dict[str, object]], str]] = {
        "no name": ([{"path": ""}], "not a path below the folder"),
        "the folder itself": ([{"path": "."}], "not a path below the folder"),
        "empty part": ([{"path": "a//b.py"}], "not a path below the folder"),
        "folder": ([{"path": "a/"}], "not a path below the folder"),
        "drive letter": ([{"path": "C:/x.py"}], "a Windows path"),
        "relative to a drive": ([{"path": "c:x.py"}], "a Windows path"),
        "backslashes": ([{"path": "..\\..\\x.py"}], "a Windows path"),
        "escape sequence": ([{"path": "a\x1b[2J.py"}], "control characters in its name"),
        "second line": ([{"path": "a\nb.py"}], "control characters in its name"),
        "one byte CSI": ([{"path": "a\x9b.py"}], "control characters in its name"),
        "hooks of git": ([{"path": ".git/hooks/pre-commit"}], "would be executed by git"),
        "hooks in capitals": ([{"path": "a/.GIT/config"}], "would be executed by git"),
        "hooks with a dot": ([{"path": ".git./config"}], "would be executed by git"),
        "deep": ([{"path": "a/" * 1000 + "b"}], "too deep"),
        "twice": ([one, one], "is listed twice"),
        "file and folder": ([{"path": "b"}, {"path": "b/c"}], "is also a folder"),
        "many": ([{"path": f"{n}.py"} for n in range(9)], "lists 9 entries, more than 8"),
        "large": ([{"path": f"{n}", "size": 1 << 32} for n in range(5)], "21.5 GB, more than"),
        "beyond the disk": ([one | {"size": 1 << 33}], "8.6 GB, and .* has 10 B free"),
        "bomb": ([one | {"at": "bomb"}], r"bomb \(changed\)"),
        "device": ([one | {"at": "zero"}], r"zero \(changed\)"),
        "fifo": ([one | {"at": "fifo"}], r"fifo \(changed\)"),
    }
    (run_dir / "code" / "bomb").touch()
    os.truncate(run_dir / "code" / "bomb", 1 << 40)
    monkeypatch.setattr(unpack_limits, "_MAX_ENTRIES", 8)
    (run_dir / "code" / "zero").symlink_to("/dev/zero")
    os.mkfifo(run_dir / "code" / "fifo")
    before = sorted(tmp_path.iterdir())
    for name, (files, message) in table.items():
        _edit_manifest(run_dir, files=[entry | file for file in files])
        free = 10 if name == "beyond the disk" else 1 << 50
        usage = SimpleNamespace(free=free)
        monkeypatch.setattr(shutil, "disk_usage", lambda folder, usage=usage: usage)
        with pytest.raises(RecordError, match=message):
            restore_code(run_dir, tmp_path / "out")
        assert sorted(tmp_path.iterdir()) == before, name
        if "entries" not in message and "GB" not in message:
            done = restore_code(run_dir, tmp_path / "partial", is_partial=True)
            left = {path.name for path in done.dir.rglob("*") if not path.is_dir()}
            assert left <= {"restored.toml", ".epochal-restored", "c", "a.py"}, name
            shutil.rmtree(done.dir)


def _edit_manifest(run_dir: Path, **changes: object) -> None:
    path = run_dir / "code" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
