from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import TYPE_CHECKING

import pytest

from epochal import durable
from epochal.durable import Blob, WriteError
from epochal.durable.safetensors_layout import build_header
from failing_disk import ERRORS, Faults, files, sweep

if TYPE_CHECKING:
    from pathlib import Path


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
