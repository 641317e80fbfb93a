"""Tests of deleting the folders of runs."""

from __future__ import annotations

import errno
import json
import os
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from epochal.durable import system
from epochal.errors import RecordError
from epochal.records.find import find_runs
from epochal.records.layout.lease import Lease
from epochal.records.layout.process import host_name, process_token
from epochal.records.prune import (
    finish_interrupted_removals,
    remove_checkpoints,
    remove_run,
    remove_unused_code,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run that ended."""
    folder = tmp_path / "store" / "shop" / "20261115-100000-abcd"
    (folder / "checkpoints" / "step-1").mkdir(parents=True)
    (folder / "checkpoints" / "step-1" / "weights").write_bytes(b"x" * 100)
    (folder / "run.json").write_text(json.dumps({"format": 1, "id": folder.name}))
    write_status(folder, "finished")
    (folder / "code").mkdir()
    (folder / "code" / "a.py").write_text("pass")
    (folder / "code" / "a.py").chmod(0o444)
    return folder


def full_disk(*words: object, **more: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def write_status(folder: Path, status: str) -> None:
    facts = {"status": status, "host": host_name(), "pid": os.getpid()}
    token = {"process": process_token(os.getpid())}
    (folder / "status.json").write_text(json.dumps(facts | token))


def test_a_run_is_deleted(run: Path) -> None:
    remove_run(run, run.parents[1])
    assert list(run.parent.iterdir()) == []
    with pytest.raises(RecordError):
        remove_run(run, run.parents[1])


def test_checkpoints_are_deleted_and_the_record_stays(run: Path) -> None:
    remove_checkpoints(run, run.parents[1])
    left = sorted(path.name for path in run.iterdir())
    assert left == ["code", "run.json", "status.json"]
    remove_checkpoints(run, run.parents[1])


def test_a_run_that_was_resumed_or_has_a_lease_stays(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_status(run, "running")
    with pytest.raises(RecordError, match="is running"):
        remove_run(run, run.parents[1])
    write_status(run, "finished")
    Lease(run)
    for operations in (system.operations, replace(system.operations, write=full_disk)):
        monkeypatch.setattr(system, "operations", operations)
        with pytest.raises(RecordError, match="is working on this run"):
            remove_run(run, run.parents[1])
    assert (run / "checkpoints").is_dir()


def test_a_full_disk_can_be_freed(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "operations", replace(system.operations, write=full_disk))
    remove_run(run, run.parents[1])
    assert not run.exists()


def test_a_run_that_cannot_be_deleted_is_named(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*words: object) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as patch:
        patch.setattr(system, "operations", replace(system.operations, rmdir=refuse))
        with pytest.raises(RecordError, match=r"abcd: .*permission denied"):
            remove_run(run, run.parents[1])


def test_a_link_to_a_run_stays(run: Path) -> None:
    for link in (run.parent / "20261116-100000-abcd", run.parents[1] / "20261116-100000-abce"):
        link.symlink_to(run)
        with pytest.raises(RecordError, match="stays, because it is reached through a link"):
            remove_run(link, run.parents[1])
        assert link.is_symlink()
    assert (run / "checkpoints" / "step-1" / "weights").exists()


class Killed(BaseException):
    """The process dies here."""


@pytest.mark.parametrize("calls", range(14))
def test_a_killed_removal_leaves_no_partial_run(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """Whenever it is killed, the run is there whole, or not at all; the next one cleans up."""
    files = {path.relative_to(run) for path in run.rglob("*")}
    left = calls

    def dying(do: Callable[..., Any]) -> Callable[..., Any]:
        def call(*words: Any, **more: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return do(*words, **more)

        return call

    names = ("replace", "unlink", "rmdir", "fsync")
    deadly = {name: dying(getattr(system.operations, name)) for name in names}
    with monkeypatch.context() as patch:
        patch.setattr(system, "operations", replace(system.operations, **deadly))
        with suppress(Killed):
            remove_run(run, run.parents[1])
    if find_runs(tmp_path):
        assert {path.relative_to(run) for path in run.rglob("*")} >= files
    monkeypatch.setattr("epochal.records.prune.is_process_gone", lambda pid, *, host: True)
    finish_interrupted_removals({run.parent})
    assert [path.name for path in run.parent.iterdir()] == [one.id for one in find_runs(tmp_path)]


def test_removals_of_living_processes_are_not_finished(run: Path) -> None:
    left = run.with_name(f".removing-{run.name}-prune.{os.getpid()}")
    run.rename(left)
    foreign = run.with_name(".removing-x-other")
    foreign.mkdir()
    finish_interrupted_removals({run.parent, run.parent / "nothing"})
    assert left.exists()
    assert foreign.exists()


def test_unused_code_is_deleted(tmp_path: Path) -> None:
    store = tmp_path / ".epochal" / "code" / "ab"
    store.mkdir(parents=True)
    (store / "abc").write_bytes(b"x" * 10)
    (store / "abd").write_bytes(b"y" * 10)
    os.link(store / "abd", tmp_path / "shared")
    assert remove_unused_code(tmp_path) == 10
    assert [path.name for path in store.iterdir()] == ["abd"]
    assert remove_unused_code(tmp_path / "nothing") == 0


def test_unused_code_behind_links_stays(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "ab").mkdir(parents=True)
    (home / "ab" / "abc").touch()
    (home / "ab" / "letter").touch()
    runs = tmp_path / "runs"
    (runs / ".epochal").mkdir(parents=True)
    (runs / ".epochal" / "code").symlink_to(home)
    assert remove_unused_code(runs) == 0
    (runs / ".epochal" / "code").unlink()
    (runs / ".epochal" / "code").mkdir()
    (runs / ".epochal" / "code" / "ab").symlink_to(home / "ab")
    (runs / ".epochal" / "code" / "epochal-1.zip").symlink_to(home / "ab" / "abc")
    assert remove_unused_code(runs) == 0
    (runs / ".epochal").rename(tmp_path / "moved")
    (runs / ".epochal").symlink_to(tmp_path / "moved")
    (tmp_path / "moved" / "code" / "ab").unlink()
    (home / "ab").rename(tmp_path / "moved" / "code" / "ab")
    assert remove_unused_code(runs) == 0
    assert len([*(tmp_path / "moved" / "code" / "ab").iterdir()]) == 2
