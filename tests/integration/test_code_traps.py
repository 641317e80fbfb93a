"""A repository full of traps for the copy of its code: links, sockets, huge files, secrets."""

from __future__ import annotations

import os
import socket
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from epochal.records.code import read_file, read_manifest
from epochal.records.code.code_snapshot import CodeSnapshot
from epochal.records.code.file_selection import SnapshotLimits

if TYPE_CHECKING:
    from collections.abc import Callable

    from epochal.records.code import CodeManifest

LIMITS = SnapshotLimits(max_file_bytes=1 << 16, max_in_folder=300, max_depth=12)
SECRET = "hunter2-hunter2"


def link_to_home(root: Path) -> None:
    home = root.parent / "home"
    home.mkdir()
    (home / "recorder.txt").write_text(SECRET)
    (root / "home").symlink_to(home)


def link_to_itself(root: Path) -> None:
    (root / "loop").symlink_to("loop")
    (root / "shop" / "up").symlink_to("..")


def broken_link(root: Path) -> None:
    (root / "broken.py").symlink_to("nowhere.py")


def fifo(root: Path) -> None:
    os.mkfifo(root / "pipe.py")


def unix_socket(root: Path) -> None:
    here = Path.cwd()
    os.chdir(root)  # the name of a socket must be short
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("talk.py")
    finally:
        os.chdir(here)


def device(root: Path) -> None:
    try:
        os.mknod(root / "zero.py", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("only a superuser may make devices")


def submodule(root: Path) -> None:
    inner = root / "vendored"
    inner.mkdir()
    (inner / ".git").write_text("gitdir: ../.git/modules/vendored\n")
    (inner / "code.py").write_text("x = 1\n")
    commit = root / ".git" / "modules" / "vendored" / "HEAD"
    commit.parent.mkdir(parents=True)
    commit.write_text("0123456789abcdef0123456789abcdef01234567\n")


def huge_file(root: Path) -> None:
    with (root / "huge.py").open("wb") as file:
        file.truncate(1 << 40)  # a sparse terabyte


def env_file(root: Path) -> None:
    (root / ".env").write_text(f"DB_PASSWORD={SECRET}\n")


def key_file(root: Path) -> None:
    (root / "shop" / "id_rsa").write_text(SECRET)
    (root / "server.pem").write_text(SECRET)


def case_clash(root: Path) -> None:
    (root / "Words.py").write_text("upper = 1\n")
    (root / "words.py").write_text("lower = 1\n")


def odd_names(root: Path) -> None:
    for name in ("new\nline.py", "-rf", "a b'\"$(x).py", "café.py", "con"):
        (root / name).write_text("odd = 1\n")
    if sys.platform == "linux":
        Path(os.fsdecode(bytes(root) + b"/bad\xff.py")).write_text("odd = 1\n")


def deep_nesting(root: Path) -> None:
    here = Path.cwd()
    os.chdir(root)
    try:
        for _ in range(200):  # longer than any path may be
            Path("deep" * 8).mkdir()
            os.chdir("deep" * 8)
        Path("bottom.py").write_text("x = 1\n")
    finally:
        os.chdir(here)


def very_many_files(root: Path) -> None:
    (root / "images").mkdir()
    for number in range(400):
        (root / "images" / f"{number}.txt").touch()


def own_records(root: Path) -> None:
    run = root / "old" / "20260101-000000-abcd"
    run.mkdir(parents=True)
    for name in ("run.json", "status.json", "metrics.txt"):
        (run / name).write_text(SECRET)


def hidden_environment(root: Path) -> None:
    (root / "python").mkdir()
    (root / "python" / "pyvenv.cfg").touch()
    (root / "python" / "site.py").write_text(SECRET)


def repository_itself(root: Path) -> None:
    (root / ".git").mkdir(exist_ok=True)
    (root / ".git" / "config").write_text(SECRET)


TRAPS: list[Callable[[Path], None]] = [
    link_to_home, link_to_itself, broken_link, fifo, unix_socket, device, submodule, huge_file,
    env_file, key_file, case_clash, odd_names, deep_nesting, very_many_files, own_records,
    hidden_environment, repository_itself,
]  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "shop").mkdir(parents=True)
    (folder / "shop" / "parts.py").write_text("x = 1\n")
    return folder


def take(root: Path) -> tuple[CodeManifest, Path]:
    home = root.parent / "runs" / ".epochal"
    home.mkdir(parents=True)
    run_dir = root.parent / "runs" / "one"
    taken = CodeSnapshot(project=root, run_dir=run_dir, home=home, limits=LIMITS).take()
    assert not any("not complete" in note for note in taken.notes)
    manifest = read_manifest(run_dir)
    assert manifest is not None
    return manifest, run_dir


def assert_harmless(run_dir: Path) -> None:
    """Check that run and store have only plain files and folders, without the secret."""
    for path in run_dir.parent.rglob("*"):
        mode = path.lstat().st_mode
        assert stat.S_ISREG(mode) or stat.S_ISDIR(mode), path
        assert not stat.S_ISREG(mode) or SECRET.encode() not in path.read_bytes(), path


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.__name__)
def test_trap_is_not_copied(root: Path, trap: Callable[[Path], None]) -> None:
    trap(root)
    manifest, run_dir = take(root)
    assert read_file(run_dir, "shop/parts.py") == b"x = 1\n"
    assert_harmless(run_dir)
    assert manifest.others or trap is case_clash


def test_all_traps_at_once_are_described_in_one_line_each(root: Path) -> None:
    for trap in TRAPS:
        trap(root)
    manifest, run_dir = take(root)
    assert_harmless(run_dir)
    others = {other.path: (other.kind, other.text) for other in manifest.others}
    deep = next(path for path, (kind, _) in others.items() if kind == "deep")
    assert deep.count("/") == LIMITS.max_depth
    del others[deep]
    expected = {
        ".env": ("secret", ""),
        ".git": ("ignored", ""),
        "bad\\udcff.py": ("odd name", ""),
        "broken.py": ("link", "nowhere.py"),
        "home": ("link", str(root.parent / "home")),
        "huge.py": ("large", "1.1 TB"),
        "images": ("many", "more than 300 names"),
        "loop": ("link", "loop"),
        "old/20260101-000000-abcd": ("records", ""),
        "pipe.py": ("fifo", ""),
        "python": ("ignored", "an environment of packages"),
        "server.pem": ("secret", ""),
        "shop/id_rsa": ("secret", ""),
        "shop/up": ("link", ".."),
        "talk.py": ("socket", ""),
        "vendored": ("submodule", "0123456789abcdef0123456789abcdef01234567"),
        "zero.py": ("device", ""),
    }
    assert others == expected
    kept = {"shop/parts.py", "Words.py", "words.py", "new\nline.py", "-rf", "a b'\"$(x).py"}
    assert set(manifest.by_path) == kept | {"café.py", "con"}
    assert all(read_file(run_dir, name) is not None for name in manifest.by_path)


def test_both_names_of_a_clash_are_kept(root: Path) -> None:
    case_clash(root)
    _, run_dir = take(root)
    assert read_file(run_dir, "Words.py") == b"upper = 1\n"
    assert read_file(run_dir, "words.py") == b"lower = 1\n"


def test_constantly_changing_file_is_copied_in_one_of_its_versions(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = root / "busy.py"
    path.write_text("x = 0\n")
    real, count = os.read, [0]

    def read(descriptor: int, size: int) -> bytes:
        data = real(descriptor, size)
        if data.startswith(b"x = "):
            count[0] += 1
            with path.open("a") as file:
                file.write(f"x = {count[0]}\n")
        return data

    monkeypatch.setattr("os.read", read)
    manifest, run_dir = take(root)
    file = manifest.by_path["busy.py"]
    assert file.note == "it changed while it was read"
    assert (read_file(run_dir, "busy.py") or b"").startswith(b"x = 0\n")


def test_file_that_becomes_a_fifo_does_not_block(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = root / "swap.py"
    path.write_text("x = 0\n")
    real = os.open

    def swap(name: object, *options: int) -> int:
        if str(name) == str(path) and path.is_file():
            path.unlink()
            os.mkfifo(path)
        return real(name, *options)  # type: ignore[arg-type]

    monkeypatch.setattr("os.open", swap)
    manifest, _ = take(root)
    assert "swap.py" not in manifest.by_path
    assert "swap.py" in {other.path for other in manifest.others}


def test_file_that_becomes_a_link_is_not_followed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, secret = root / "swap.py", root.parent / "secret"
    path.write_text("x = 0\n")
    secret.write_text(SECRET)
    real = os.open

    def swap(name: object, *options: int) -> int:
        if str(name) == str(path) and not path.is_symlink():
            path.unlink()
            path.symlink_to(secret)
        return real(name, *options)  # type: ignore[arg-type]

    monkeypatch.setattr("os.open", swap)
    home = root.parent / "runs" / ".epochal"
    home.mkdir(parents=True)
    shot = CodeSnapshot(project=root, run_dir=root.parent / "runs" / "one", home=home)
    assert "swap.py" in shot.take().notes[0]
    assert_harmless(shot.run_dir)


@pytest.mark.skipif(os.geteuid() == 0, reason="a superuser may read everything")
def test_unreadable_file_is_named(root: Path) -> None:
    (root / "closed.py").write_text(SECRET)
    (root / "closed.py").chmod(0)
    home = root.parent / "runs" / ".epochal"
    home.mkdir(parents=True)
    shot = CodeSnapshot(project=root, run_dir=root.parent / "runs" / "one", home=home)
    assert "closed.py (permission denied)" in shot.take().notes[0]
