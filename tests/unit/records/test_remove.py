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
from epochal.records.layout.alive import Lease
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
    (folder / "run.json").write_text("{}")
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
    remove_run(run)
    assert list(run.parent.iterdir()) == []
    with pytest.raises(RecordError):
        remove_run(run)


def test_checkpoints_are_deleted_and_the_record_stays(run: Path) -> None:
    remove_checkpoints(run)
    left = sorted(path.name for path in run.iterdir())
    assert left == ["code", "run.json", "status.json"]
    remove_checkpoints(run)


def test_a_run_that_was_resumed_or_has_a_lease_stays(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_status(run, "running")
    with pytest.raises(RecordError, match="is running"):
        remove_run(run)
    write_status(run, "finished")
    Lease(run)
    for operations in (system.operations, replace(system.operations, write=full_disk)):
        monkeypatch.setattr(system, "operations", operations)
        with pytest.raises(RecordError, match="works on this run"):
            remove_run(run)
    assert (run / "checkpoints").is_dir()


def test_a_full_disk_can_be_freed(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "operations", replace(system.operations, write=full_disk))
    remove_run(run)
    assert not run.exists()


def test_a_run_that_cannot_be_deleted_is_named(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*words: object) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as patch:
        patch.setattr(system, "operations", replace(system.operations, rmdir=refuse))
        with pytest.raises(RecordError, match=r"abcd: .*permission denied"):
            remove_run(run)


def test_deleting_a_link_keeps_its_run(run: Path) -> None:
    link = run.parent / "20261116-100000-abcd"
    link.symlink_to(run)
    remove_run(link)
    assert not link.is_symlink()
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
            remove_run(run)
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
