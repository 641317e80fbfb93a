"""Tests of epochal.records.folder.folder."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epochal import durable
from epochal.errors import RecordError
from epochal.records.folder.folder import RecordOptions, RunFolder, create_run_folder, slugify


def create(
    base: Path, *, project: str = "digits", tag: str = "mlp", **options: object
) -> RunFolder:
    return create_run_folder(RecordOptions(**options), project=project, tag=tag, base=base)  # type: ignore[arg-type]


def test_folder_is_named_by_project_tag_and_time(tmp_path: Path) -> None:
    folder = create(tmp_path)
    assert folder.path.parent == tmp_path / "runs" / "digits" / "mlp"
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{4}", folder.id)
    assert folder.id == folder.path.name


def test_a_folder_has_its_subfolders(tmp_path: Path) -> None:
    folder = create(tmp_path, subdirs=("plots", "dumps/deep"))
    made = {str(path.relative_to(folder.path)) for path in folder.path.rglob("*")}
    assert made == {
        *("config", "logs", "media", "checkpoints"),
        *("plots", "dumps", "dumps/deep"),
    }
    for part in (
        folder.config_dir,
        (folder.path / "logs"),
        folder.path / "media",
        folder.checkpoint_dir,
    ):
        assert part.is_dir()
    assert folder.log_path == (folder.path / "logs") / "run.log"


def test_the_log_file_may_be_in_a_subfolder(tmp_path: Path) -> None:
    folder = create(tmp_path, log_file="rank0/train.log")
    assert folder.log_path == (folder.path / "logs") / "rank0" / "train.log"
    assert folder.log_path.parent.is_dir()


def test_an_id_that_exists_is_not_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = iter([b"\0\0", b"\0\0", b"\0\1"])
    monkeypatch.setattr("os.urandom", lambda _: next(numbers))
    monkeypatch.setattr("epochal.records.folder.folder.datetime", StoppedClock)
    assert create(tmp_path).id == "20260102-030405-0000"
    assert create(tmp_path).id == "20260102-030405-0001"


class StoppedClock:
    @classmethod
    def now(cls) -> StoppedClock:
        return cls()

    def astimezone(self) -> StoppedClock:
        return self

    def __format__(self, _: str) -> str:
        return "20260102-030405"


def test_absolute_log_dir_needs_no_base(tmp_path: Path) -> None:
    folder = create(Path("/nowhere"), log_dir=tmp_path / "records")
    assert folder.path.is_relative_to(tmp_path / "records")


def test_exact_folder_is_the_run_itself(tmp_path: Path) -> None:
    folder = create(tmp_path, log_dir=Path("deep/mine"), exact=True)
    assert folder.path == tmp_path / "deep" / "mine"
    assert folder.config_dir.is_dir()


def test_exact_folder_must_be_new_or_empty(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    assert create(tmp_path, log_dir=Path("mine"), exact=True).path == tmp_path / "mine"
    with pytest.raises(RecordError, match=r"mine: is not empty, it holds 'checkpoints'\n  name a"):
        create(tmp_path, log_dir=Path("mine"), exact=True)
    (tmp_path / "file").write_text("x")
    with pytest.raises(RecordError, match="file: is a file, not a folder"):
        create(tmp_path, log_dir=Path("file"), exact=True)


@pytest.mark.parametrize(
    "name", ["..", "../x", "a/../../x", "/etc", "", ".", "C:\\x", "..\\x", "\0"]
)
@pytest.mark.parametrize("key", ["subdirs", "log_file"])
def test_paths_that_leave_the_run_are_refused(tmp_path: Path, name: str, key: str) -> None:
    value = (name,) if key == "subdirs" else name
    with pytest.raises(
        RecordError, match=f"record.{key}: must stay inside .*got {re.escape(repr(name))}"
    ):
        create(tmp_path, **{key: value})
    assert not list(tmp_path.iterdir())


def test_names_become_safe_path_components() -> None:
    for text, expected in [
        ("digits-mlp", "digits-mlp"),
        ("lr=1e-3, wide", "lr=1e-3-wide"),
        ("resnet 50\t(v1.5)", "resnet-50-v1.5"),
        ("../../etc/passwd", "etc-passwd"),
        ("..", "fallback"),
        (".hidden", "hidden"),
        ("a..b", "a-b"),
        ("", "fallback"),
        (" / ", "fallback"),
        ("日本語", "日本語"),
        ("हिन्दी", "हिन्दी"),
        ("e\u0301", "é"),
        ("a\u202eb\0c\ud800d", "a-b-c-d"),
        ("🎉", "fallback"),
    ]:
        assert slugify(text, default="fallback") == expected


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(), max_size=200))
def test_any_name_is_safe(text: str) -> None:
    name = slugify(text, default="fallback")
    assert Path(name).name == name
    assert name not in ("", ".", "..")
    assert not name.startswith((".", "-"))
    assert len(name.encode()) <= 80
    assert slugify(name, default="fallback") == name


def test_any_project_and_tag_are_one_level_each(tmp_path: Path) -> None:
    folder = create(tmp_path, project="../../x", tag="ü/" * 200)
    assert folder.path.resolve().relative_to(tmp_path / "runs").parts[0] == "x"
    assert len(folder.path.relative_to(tmp_path / "runs").parts) == 3


def test_an_unwritable_folder_is_refused_with_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = "\n  choose another folder: record.log_dir=PATH"
    for code, message in (
        (errno.EROFS, f"records of runs cannot be written there: read-only file system{elsewhere}"),
        (
            errno.ENOENT,
            f"records of runs cannot be written there: no such file or dir.*{elsewhere}",
        ),
        (errno.ENOSPC, "free some space there"),
    ):

        def refuse(path: Path, code: int = code) -> None:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(durable.system, "operations", durable.Operations(mkdir=refuse))
        with pytest.raises(RecordError, match=message):
            create_run_folder(RecordOptions(log_dir=tmp_path / "x"), project="p", tag="t")
    monkeypatch.undo()
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(RecordError, match=r"runs: records .*: not a directory\n  choose"):
        create(tmp_path)


def test_text_logs_are_found_by_rank(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "train[1].txt")
    names = [folder.log_path_of(rank).name for rank in (0, 1, 12)]
    assert names == ["train[1].txt", "train[1].rank1.txt", "train[1].rank12.txt"]
    assert folder.find_logs() == {}
    (folder.path / "logs").mkdir()
    for name in (*names, "train[1].rankx.txt", "other.txt", "train1.rank3.txt"):
        ((folder.path / "logs") / name).touch()
    assert folder.find_logs() == {rank: folder.log_path_of(rank) for rank in (0, 1, 12)}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_run_folder_is_private_unless_asked_otherwise(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        folder = create(tmp_path)
        assert mode(folder.path) == 0o700
        assert mode(folder.path.parent) == 0o755  # other runs may be there
        options = RecordOptions(log_dir=tmp_path / "shared")
        shared = create_run_folder(options, project="p", tag="t", is_private=False)
        assert mode(shared.path) == 0o755
        (tmp_path / "own").mkdir()
        for name, expected in (("own", 0o755), ("new", 0o700)):
            options = RecordOptions(log_dir=tmp_path / name, exact=True)
            exact = create_run_folder(options, project="p", tag="t")
            assert mode(exact.path) == expected, name
    finally:
        os.umask(before)
