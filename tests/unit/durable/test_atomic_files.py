"""Tests of epochal.durable.atomic_files."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import TYPE_CHECKING

import pytest

from epochal import durable
from epochal.durable import WriteError
from failing_disk import ERRORS, Faults, files, sweep

if TYPE_CHECKING:
    from pathlib import Path


def test_written_bytes_are_read_back(tmp_path: Path) -> None:
    durable.write_bytes(tmp_path / "a.bin", b"\0\xff")
    assert (tmp_path / "a.bin").read_bytes() == b"\0\xff"
    assert files(tmp_path) == ["a.bin"]


def test_writing_replaces_the_old_content(tmp_path: Path) -> None:
    durable.write_text(tmp_path / "a", "a long first text")
    durable.write_text(tmp_path / "a", "short")
    assert (tmp_path / "a").read_text() == "short"


@pytest.mark.parametrize("code", ERRORS)
@pytest.mark.parametrize("allowed", range(10))
def test_failing_safetensors_write_leaves_no_partial_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: int, code: int
) -> None:
    path = tmp_path / "weights.safetensors"
    tensors = {name: durable.Blob("U8", (3,), b"abc") for name in "ab"}
    faults = Faults(allowed=allowed, code=code)
    monkeypatch.setattr(durable.system, "operations", faults.operations)
    with pytest.raises(WriteError, match=r"weights\.safetensors: cannot be written"):
        durable.write_safetensors(path, tensors)
    was_renamed = "replace" in faults.names and faults.failed != "replace"
    assert files(tmp_path) == (["weights.safetensors"] if was_renamed else [])


def test_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="a: cannot be written: no such file"):
        durable.write_bytes(tmp_path / "none" / "a", b"x")


def test_text_with_lone_surrogates_can_be_written(tmp_path: Path) -> None:
    durable.write_text(tmp_path / "a", "ä\ud800")
    assert (tmp_path / "a").read_text("utf-8") == "ä\\ud800"


def test_make_dir_makes_parents_and_refuses_what_exists(tmp_path: Path) -> None:
    durable.make_dir(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()
    with pytest.raises(WriteError, match="cannot be made: file exists") as caught:
        durable.make_dir(tmp_path / "a" / "b" / "c")
    assert isinstance(caught.value.__cause__, FileExistsError)


def test_make_dir_accepts_a_parent_that_somebody_else_just_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_failing_operations_of_make_dir_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    count = iter(range(100))
    outcomes = sweep(
        monkeypatch, lambda: durable.make_dir(tmp_path / f"{next(count)}" / "x"), code=code
    )
    assert [faults.failed for faults, _ in outcomes] == [
        *("mkdir", "open", "fsync", "close"),
        *("mkdir", "open", "fsync", "close"),
    ]


def test_safetensors_files_are_read_by_the_library(tmp_path: Path) -> None:
    from safetensors import safe_open

    path = tmp_path / "a.safetensors"
    tensors = {
        "bytes": durable.Blob("U8", (3,), b"abc"),
        "number": durable.Blob("F64", (), bytes(8)),
        "empty": durable.Blob("F32", (0, 4), b""),
        "half": durable.Blob("F16", (2, 1), memoryview(bytearray(4))),
    }
    digest = durable.write_safetensors(path, tensors, {"note": "ü"})
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()
    with safe_open(path, framework="numpy") as file:
        assert set(file.keys()) == set(tensors)
        assert file.metadata() == {"note": "ü"}
        assert file.get_tensor("bytes").tolist() == list(b"abc")
        assert file.get_tensor("number").shape == ()
        assert file.get_tensor("empty").shape == (0, 4)


def test_an_object_is_found_where_one_was_written(tmp_path: Path) -> None:
    durable.write_json(tmp_path / "a.json", {"step": 3})
    assert durable.find_object(tmp_path / "a.json") == {"step": 3}


@pytest.mark.parametrize("text", ["", "{", "[1]", "[" * 100_000])
def test_no_object_is_found_in_a_file_that_holds_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    assert durable.find_object(tmp_path / "a.json") == {}
    assert durable.find_object(tmp_path / "missing.json") == {}


@pytest.mark.parametrize("ahead", [0, 20, 1000])
@pytest.mark.parametrize("small", [0, 5, 1000])
def test_safetensors_larger_than_a_chunk_are_hashed_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: int, small: int
) -> None:
    monkeypatch.setattr(durable.atomic_files, "_CHUNK_BYTES", 7)
    monkeypatch.setattr(durable.atomic_files, "_SMALL_BYTES", small)
    monkeypatch.setattr(durable.atomic_files, "_MAX_AHEAD", ahead)
    path = tmp_path / "a.safetensors"
    blobs = {
        "a": durable.Blob("U8", (100,), bytes(range(100))),
        "b": durable.Blob("U8", (3,), lambda: b"abc"),
    }
    digest = durable.write_safetensors(path, blobs)
    assert path.read_bytes().endswith(bytes(range(100)) + b"abc")
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()


def test_safetensors_data_starts_aligned_with_wide_types_first(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    blobs = {"a": durable.Blob("U8", (1,), b"a"), "b": durable.Blob("I64", (1,), bytes(8))}
    durable.write_safetensors(path, blobs)
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    assert size % 8 == 0
    header = json.loads(data[8 : 8 + size])
    assert header["b"]["data_offsets"] == [0, 8]
    assert header["a"]["data_offsets"] == [8, 9]
