"""Files, folders and links appear whole or not at all."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
import stat
from pathlib import Path

import pytest

from epochal import durable
from epochal.durable import Blob, WriteError, is_untouched, link_or_copy, write_readonly
from epochal.durable.atomic import build_header
from failing_disk import ERRORS, Faults, files, sweep


def test_written_bytes_are_read_back(tmp_path) -> None:
    durable.write_bytes(tmp_path / "a.bin", b"\0\xff")
    assert (tmp_path / "a.bin").read_bytes() == b"\0\xff"
    assert files(tmp_path) == ["a.bin"]


def test_writing_replaces_the_old_content(tmp_path) -> None:
    durable.write_text(tmp_path / "a", "a long first text")
    durable.write_text(tmp_path / "a", "short")
    assert (tmp_path / "a").read_text() == "short"


@pytest.mark.parametrize("code", ERRORS)
@pytest.mark.parametrize("allowed", range(10))
def test_failing_safetensors_write_leaves_no_partial_file(
    tmp_path, monkeypatch, allowed, code
) -> None:
    path = tmp_path / "weights.safetensors"
    tensors = {name: Blob("U8", (3,), b"abc") for name in "ab"}
    faults = Faults(allowed=allowed, code=code)
    monkeypatch.setattr(durable.system, "operations", faults.operations)
    with pytest.raises(WriteError, match=r"weights\.safetensors: cannot be written"):
        durable.write_safetensors(path, tensors)
    was_renamed = "replace" in faults.names and faults.failed != "replace"
    assert files(tmp_path) == (["weights.safetensors"] if was_renamed else [])


def test_missing_folder_is_named(tmp_path) -> None:
    with pytest.raises(WriteError, match="a: cannot be written: no such file"):
        durable.write_bytes(tmp_path / "none" / "a", b"x")


def test_text_with_lone_surrogates_can_be_written(tmp_path) -> None:
    durable.write_text(tmp_path / "a", "ä\ud800")
    assert (tmp_path / "a").read_text("utf-8") == "ä\\ud800"


def test_make_dir_makes_parents_and_refuses_what_exists(tmp_path) -> None:
    durable.make_dir(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()
    with pytest.raises(WriteError, match="cannot be made: file exists") as caught:
        durable.make_dir(tmp_path / "a" / "b" / "c")
    assert isinstance(caught.value.__cause__, FileExistsError)


def test_make_dir_accepts_a_parent_that_another_process_made(tmp_path, monkeypatch) -> None:
    def mkdir(path: Path) -> None:
        if path.name == "project" and not path.exists():
            path.mkdir()
        path.mkdir()

    monkeypatch.setattr(
        durable.system, "operations", dataclasses.replace(durable.system.operations, mkdir=mkdir)
    )
    durable.make_dir(tmp_path / "project" / "run")
    assert (tmp_path / "project" / "run").is_dir()


@pytest.mark.parametrize("code", ERRORS)
def test_failing_operations_of_make_dir_are_reported(tmp_path, monkeypatch, code) -> None:
    count = iter(range(100))
    outcomes = sweep(
        monkeypatch, lambda: durable.make_dir(tmp_path / f"{next(count)}" / "x"), code=code
    )
    assert [faults.failed for faults, _ in outcomes] == [
        *("mkdir", "open", "fsync", "close"),
        *("mkdir", "open", "fsync", "close"),
    ]


def test_safetensors_files_are_read_by_the_library(tmp_path) -> None:
    from safetensors import safe_open

    path = tmp_path / "a.safetensors"
    tensors = {
        "bytes": Blob("U8", (3,), b"abc"),
        "number": Blob("F64", (), bytes(8)),
        "empty": Blob("F32", (0, 4), b""),
        "half": Blob("F16", (2, 1), memoryview(bytearray(4))),
    }
    digest = durable.write_safetensors(path, tensors, {"note": "ü"})
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()
    with safe_open(path, framework="numpy") as file:
        assert set(file.keys()) == set(tensors)
        assert file.metadata() == {"note": "ü"}
        assert file.get_tensor("bytes").tolist() == list(b"abc")
        assert file.get_tensor("number").shape == ()
        assert file.get_tensor("empty").shape == (0, 4)


def test_an_object_is_found_only_where_one_was_written(tmp_path) -> None:
    durable.write_json(tmp_path / "a.json", {"step": 3})
    assert durable.find_object(tmp_path / "a.json") == {"step": 3}
    assert durable.find_object(tmp_path / "missing.json") == {}
    for text in ("", "{", "[1]", "[" * 100_000):
        (tmp_path / "a.json").write_text(text)
        assert durable.find_object(tmp_path / "a.json") == {}, text[:9]


@pytest.mark.parametrize("ahead", [0, 20, 1000])
@pytest.mark.parametrize("small", [0, 5, 1000])
def test_safetensors_larger_than_a_chunk_are_hashed_whole(
    tmp_path, monkeypatch, ahead, small
) -> None:
    monkeypatch.setattr(durable.atomic, "_CHUNK_BYTES", 7)
    monkeypatch.setattr(durable.atomic, "_SMALL_BYTES", small)
    monkeypatch.setattr(durable.atomic, "_MAX_AHEAD", ahead)
    path = tmp_path / "a.safetensors"
    blobs = {"a": Blob("U8", (100,), bytes(range(100))), "b": Blob("U8", (3,), lambda: b"abc")}
    digest = durable.write_safetensors(path, blobs)
    assert path.read_bytes().endswith(bytes(range(100)) + b"abc")
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()


def test_data_starts_aligned_and_wide_types_come_first() -> None:
    blobs = {"a": Blob("U8", (1,), b"a"), "b": Blob("I64", (1,), bytes(8))}
    header, names = build_header(blobs, {})
    assert names == ["b", "a"]
    assert len(header) % 8 == 0
    assert json.loads(header[8:])["a"]["data_offsets"] == [8, 9]


def test_bytes_are_made_when_they_are_written() -> None:
    made = []

    def make() -> bytes:
        made.append(True)
        return b"abc"

    blob = Blob("U8", (3,), make)
    build_header({"a": blob}, {})
    assert not made
    assert bytes(blob.view("a")) == b"abc"


def test_wrong_tensors_are_refused() -> None:
    for name, blob in (
        ("a", Blob("F32", (2,), bytes(4))),
        ("__metadata__", Blob("U8", (1,), b"x")),
    ):
        with pytest.raises(ValueError, match=f"{name}: "):
            build_header({name: blob}, {})


def test_made_bytes_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match=r"a: 2 bytes do not make U8 of \(3,\)"):
        Blob("U8", (3,), lambda: b"ab").view("a")


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
    for leftover in (".removing-a-1.x", ".removing-a.1-1.x"):  # of processes that were killed
        (tmp_path / leftover / "inside").mkdir(parents=True)
    durable.remove_tree(tmp_path / "a", "1.x")
    assert durable.remove_stale(tmp_path, lambda owner: owner == "1.x") == [
        ".removing-a-1.x",
        ".removing-a.1-1.x",
    ]
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


def test_a_read_only_file_is_whole_and_replaces_another(tmp_path) -> None:
    for data in (b"one", b"two"):
        write_readonly(tmp_path / "a", data)
        assert (tmp_path / "a").read_bytes() == data
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o444
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("code", ERRORS)
def test_failure_leaves_nothing_behind(tmp_path, monkeypatch, code) -> None:
    outcomes = sweep(monkeypatch, lambda: write_readonly(tmp_path / "a", b"one"), code=code)
    assert len(outcomes) >= 4
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_link_is_the_same_file(tmp_path) -> None:
    write_readonly(tmp_path / "a", b"one")
    link_or_copy(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "a").samefile(tmp_path / "b")


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP])
def test_the_file_is_copied_where_links_are_not_supported(tmp_path, monkeypatch, code) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    write_readonly(tmp_path / "a", b"one")
    monkeypatch.setattr(durable.system, "operations", durable.Operations(link=refuse))
    link_or_copy(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"one"
    assert not (tmp_path / "a").samefile(tmp_path / "b")


def test_linking_a_missing_file_is_an_error(tmp_path) -> None:
    with pytest.raises(WriteError, match="cannot be written: no such file") as caught:
        link_or_copy(tmp_path / "a", tmp_path / "b")
    assert caught.value.errno == errno.ENOENT


def test_linking_never_replaces_a_file(tmp_path) -> None:
    write_readonly(tmp_path / "a", b"one")
    write_readonly(tmp_path / "b", b"two")
    with pytest.raises(WriteError, match="exists"):
        link_or_copy(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"two"


def test_a_file_is_untouched_until_it_is_written_to(tmp_path) -> None:
    path = tmp_path / "a"
    assert not is_untouched(path, 3)
    write_readonly(path, b"one")
    assert is_untouched(path, 3)
    assert not is_untouched(path, 2)
    path.chmod(0o644)
    path.write_bytes(b"two")
    assert not is_untouched(path, 3)
