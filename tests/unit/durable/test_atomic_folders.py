"""Folders; the sweeps over every system call are in tests/faults."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import os
from pathlib import Path

import pytest

from epochal import durable
from epochal.durable import Blob, WriteError
from failing_disk import files


def test_folder_appears_whole_when_the_block_ends(tmp_path) -> None:
    target = tmp_path / "a"
    with durable.staged_dir(target, "1.x") as staged:
        digest = staged.write_bytes("text", b"abc")
        staged.write_safetensors("tensors", {"w": Blob("U8", (1,), b"x")})
        assert files(tmp_path) == [".staging-a-1.x"]
    assert files(tmp_path) == ["a"]
    assert files(target) == ["tensors", "text"]
    assert digest == hashlib.sha256(b"abc").hexdigest()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_nothing_appears_when_the_block_fails(tmp_path, error) -> None:
    with pytest.raises(error), durable.staged_dir(tmp_path / "a", "1.x") as staged:  # noqa: PT012
        staged.write_bytes("text", b"abc")
        raise error
    assert files(tmp_path) == []


def test_folder_that_exists_is_never_replaced(tmp_path) -> None:
    (tmp_path / "a").mkdir()
    with (
        pytest.raises(WriteError, match="a: cannot be written: file exists"),
        durable.staged_dir(tmp_path / "a", "1.x"),
    ):
        pass
    assert files(tmp_path) == ["a"]


def test_link_is_replaced_and_is_relative(tmp_path) -> None:
    for name in ("one", "two"):
        durable.replace_link(tmp_path / "last", name)
        assert (tmp_path / "last").readlink() == Path(name)
    assert files(tmp_path) == ["last"]


def test_a_text_file_replaces_links_that_are_not_supported(tmp_path, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    without = dataclasses.replace(durable.system.operations, symlink=fail)
    monkeypatch.setattr(durable.system, "operations", without)
    for name in ("one", "two"):
        durable.replace_link(tmp_path / "last", name)
        assert (tmp_path / "last").read_text() == name
    assert files(tmp_path) == ["last"]


def test_link_cannot_take_the_place_of_a_folder(tmp_path) -> None:
    (tmp_path / "last" / "inner").mkdir(parents=True)
    with pytest.raises(WriteError, match="last: cannot be written"):
        durable.replace_link(tmp_path / "last", "one")
    assert files(tmp_path) == ["last"]


def test_removed_folder_is_gone_and_what_it_links_to_is_not(tmp_path) -> None:
    (tmp_path / "a" / "inner").mkdir(parents=True)
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    (tmp_path / "a" / "inner" / "link").symlink_to(tmp_path / "kept")
    durable.remove_tree(tmp_path / "a", "1.x")
    assert files(tmp_path) == ["kept"]
    assert files(tmp_path / "kept") == ["file"]


def test_rename_keeps_everything(tmp_path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").touch()
    durable.rename(tmp_path / "a", tmp_path / "b")
    assert files(tmp_path / "b") == ["file"]


def test_leftovers_are_removed_by_their_owner(tmp_path) -> None:
    asked = []

    def is_stale(owner: str) -> bool:
        asked.append(owner)
        return owner != "7.live"

    for name in (".staging-step-3-5.dead", ".staging-x-7.live", ".removing-a-b-5.dead", "a", ".b"):
        (tmp_path / name).mkdir()
    (tmp_path / ".last.5-12ab.tmp").touch()
    removed = durable.remove_stale(tmp_path, is_stale)
    assert removed == [".last.5-12ab.tmp", ".removing-a-b-5.dead", ".staging-step-3-5.dead"]
    assert sorted(asked) == ["5", "5.dead", "5.dead", "7.live"]
    assert files(tmp_path) == [".b", ".staging-x-7.live", "a"]


def test_a_missing_folder_has_no_leftovers(tmp_path) -> None:
    assert durable.remove_stale(tmp_path / "none", lambda _: True) == []
