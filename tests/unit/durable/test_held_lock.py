"""A held lock is free when its holders have ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from epochal import durable
from epochal.durable import held_lock

if TYPE_CHECKING:
    from pathlib import Path


def test_only_one_can_hold_a_lock_also_in_one_process(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    lock = durable.try_lock(path, {"pid": 5})
    assert lock is not None
    assert durable.try_lock(path, {"pid": 6}) is None
    assert durable.read_holder(path) == {"pid": 5}
    lock.write({"pid": 7})
    assert durable.read_holder(path) == {"pid": 7}
    lock.release()
    lock.release()
    assert durable.read_holder(path) == {}
    again = durable.try_lock(path, {})
    assert again is not None
    again.release()


def test_release_frees_a_lock_that_a_child_inherited(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    lock = durable.try_lock(path, {})
    assert lock is not None
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", "input()"],
        stdin=subprocess.PIPE,
        pass_fds=[lock.descriptor],
    )
    lock.release()
    again = durable.try_lock(path, {})
    child.communicate(b"\n")
    assert again is not None
    again.release()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("mine")
    (tmp_path / "a.lock").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic links"):
        durable.try_lock(tmp_path / "a.lock", {})
    assert (tmp_path / "target").read_text() == "mine"


def test_without_locks_of_the_system_the_holder_and_its_beats_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, flags: int) -> None:
        raise OSError("no locks here")

    monkeypatch.setattr(held_lock.fcntl, "flock", refuse)
    path = tmp_path / "a.lock"
    lock = durable.try_lock(path, {"pid": 5})
    assert lock is not None
    assert durable.try_lock(path, {}) is None
    long_ago = time.time() - held_lock.STALE_SECONDS - 1
    os.utime(path, (long_ago, long_ago))
    lock.beat()
    assert durable.try_lock(path, {}) is None
    taken = durable.try_lock(path, {"pid": 6}, is_gone=lambda facts: facts["pid"] == 5)
    assert taken is not None
    os.utime(path, (long_ago, long_ago))
    last = durable.try_lock(path, {})
    assert last is not None
    for one in (lock, taken, last):
        one.release()
