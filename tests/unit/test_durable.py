"""Tests of epochal.durable: what is on disk after any operation failed."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from epochal import durable
from epochal.durable import WriteError

if TYPE_CHECKING:
    from collections.abc import Callable

ERRORS = [errno.EIO, errno.ENOSPC]


class Faults:
    """Lets ``allowed`` operations pass and makes the next one fail, as a full disk would."""

    def __init__(self, *, allowed: int, code: int = errno.EIO, short: bool = False) -> None:
        self.names: list[str] = []
        self.failed = ""
        real = durable.Operations()
        self._fail_at, self._code, self._short = allowed, code, short
        fields = [field.name for field in dataclasses.fields(real)]
        self.operations = durable.Operations(
            **{name: self._guard(name, getattr(real, name)) for name in fields}
        )

    def _guard(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            self.names.append(name)
            if len(self.names) - 1 == self._fail_at:
                self.failed = name
                if name == "close":  # the kernel lets go of the file even when close fails
                    real(*args)
                if name == "write" and self._short:
                    return real(args[0], args[1][: len(args[1]) // 2])
                raise OSError(self._code, os.strerror(self._code))
            return real(*args)

        return call


def sweep(
    monkeypatch: pytest.MonkeyPatch, action: Callable[[], object], *, code: int
) -> list[tuple[Faults, WriteError]]:
    """Every operation of ``action`` fails in turn; the faults and the errors they led to."""
    outcomes = []
    for allowed in range(100):
        faults = Faults(allowed=allowed, code=code)
        monkeypatch.setattr(durable, "operations", faults.operations)
        try:
            action()
        except WriteError as error:
            outcomes.append((faults, error))
        else:
            assert not faults.failed, f"a failed {faults.failed} was swallowed"
            return outcomes
        finally:
            monkeypatch.setattr(durable, "operations", durable.Operations())
    raise AssertionError("the sweep does not end")


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_written_bytes_are_read_back(tmp_path: Path) -> None:
    durable.write_bytes(tmp_path / "a.bin", b"\0\xff")
    assert (tmp_path / "a.bin").read_bytes() == b"\0\xff"
    assert files(tmp_path) == ["a.bin"]


def test_writing_replaces_the_old_content(tmp_path: Path) -> None:
    durable.write_text(tmp_path / "a", "a long first text")
    durable.write_text(tmp_path / "a", "short")
    assert (tmp_path / "a").read_text() == "short"


def test_file_is_synced_before_it_gets_its_name_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults(allowed=1000)
    monkeypatch.setattr(durable, "operations", faults.operations)
    durable.write_bytes(tmp_path / "a", b"x")
    assert faults.names == [
        *("open", "write", "fsync", "close", "replace"),
        *("open", "fsync", "close"),
    ]


def test_temporary_file_lies_beside_its_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renamed: list[tuple[Path, Path]] = []

    def replace(old: Path, new: Path) -> None:
        renamed.append((old, new))
        old.replace(new)

    watched = dataclasses.replace(durable.operations, replace=replace)
    monkeypatch.setattr(durable, "operations", watched)
    durable.write_bytes(tmp_path / ("n" * 255), b"x")
    [(old, new)] = renamed
    assert old.parent == new.parent == tmp_path
    assert old.name.startswith(".")


@pytest.mark.parametrize("code", ERRORS)
@pytest.mark.parametrize("allowed", range(8))
def test_a_failing_write_leaves_the_old_or_the_whole_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: int, code: int
) -> None:
    path = tmp_path / "status.json"
    path.write_bytes(b"old")
    faults = Faults(allowed=allowed, code=code)
    monkeypatch.setattr(durable, "operations", faults.operations)
    with pytest.raises(WriteError, match=r"status\.json: cannot be written: \w"):
        durable.write_bytes(path, b"new content")
    was_renamed = "replace" in faults.names and faults.failed != "replace"
    assert path.read_bytes() == (b"new content" if was_renamed else b"old")
    assert files(tmp_path) == ["status.json"]


@pytest.mark.parametrize("code", ERRORS)
@pytest.mark.parametrize("allowed", range(10))
def test_failing_safetensors_write_leaves_no_partial_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: int, code: int
) -> None:
    path = tmp_path / "weights.safetensors"
    tensors = {name: durable.Blob("U8", (3,), b"abc") for name in "ab"}
    faults = Faults(allowed=allowed, code=code)
    monkeypatch.setattr(durable, "operations", faults.operations)
    with pytest.raises(WriteError, match=r"weights\.safetensors: cannot be written"):
        durable.write_safetensors(path, tensors)
    was_renamed = "replace" in faults.names and faults.failed != "replace"
    assert files(tmp_path) == (["weights.safetensors"] if was_renamed else [])


def test_temporary_file_that_cannot_be_removed_is_not_under_the_final_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "fault")

    stuck = dataclasses.replace(durable.operations, fsync=fail, unlink=fail)
    monkeypatch.setattr(durable, "operations", stuck)
    with pytest.raises(WriteError, match="fault"):
        durable.write_bytes(tmp_path / "a", b"x")
    [left] = files(tmp_path)
    assert left.startswith(".a.")
    assert left.endswith(".tmp")


def test_interrupting_a_write_removes_the_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    broken = dataclasses.replace(durable.operations, fsync=interrupt)
    monkeypatch.setattr(durable, "operations", broken)
    with pytest.raises(KeyboardInterrupt):
        durable.write_bytes(tmp_path / "a", b"x")
    assert files(tmp_path) == []


def test_short_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drip = dataclasses.replace(durable.operations, write=lambda fd, data: os.write(fd, data[:3]))
    monkeypatch.setattr(durable, "operations", drip)
    durable.write_bytes(tmp_path / "a", b"0123456789")
    with durable.Appender(tmp_path / "b") as appender:
        appender.append(b"0123456789")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == b"0123456789"


def test_a_write_that_gets_nowhere_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = dataclasses.replace(durable.operations, write=lambda *_: 0)
    monkeypatch.setattr(durable, "operations", stuck)
    with pytest.raises(WriteError, match="nothing was written"):
        durable.write_bytes(tmp_path / "a", b"x")


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP])
def test_file_systems_that_cannot_sync_folders_are_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(code, "not for folders")

    picky = dataclasses.replace(durable.operations, fsync=fsync)
    monkeypatch.setattr(durable, "operations", picky)
    durable.write_bytes(tmp_path / "a", b"x")
    assert files(tmp_path) == ["a"]


def test_errors_name_the_file_the_reason_and_the_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "operations", Faults(allowed=0, code=errno.ENOSPC).operations)
    with pytest.raises(WriteError) as caught:
        durable.write_bytes(tmp_path / "a", b"x")
    assert str(caught.value) == f"{tmp_path / 'a'}: cannot be written: no space left on device"
    assert caught.value.errno == errno.ENOSPC
    assert isinstance(caught.value.__cause__, OSError)


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

    monkeypatch.setattr(durable, "operations", dataclasses.replace(durable.operations, mkdir=mkdir))
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


def test_appended_records_follow_each_other(tmp_path: Path) -> None:
    with durable.Appender(tmp_path / "a") as appender:
        appender.append(b"one")
        appender.append(b"two")
    with durable.Appender(tmp_path / "a") as appender:
        appender.append(b"three")
    assert (tmp_path / "a").read_bytes() == b"onetwothree"


def test_append_is_one_write_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with durable.Appender(tmp_path / "a") as appender:
        faults = Faults(allowed=1000)
        monkeypatch.setattr(durable, "operations", faults.operations)
        appender.append(b"x" * 1000)
        assert faults.names == ["write"]


def test_synced_append_is_on_the_disk_when_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with durable.Appender(tmp_path / "a", sync=True) as appender:
        faults = Faults(allowed=1000)
        monkeypatch.setattr(durable, "operations", faults.operations)
        appender.append(b"x")
        assert faults.names == ["write", "fsync"]


@pytest.mark.parametrize("code", ERRORS)
@pytest.mark.parametrize("allowed", [0, 1])
def test_failed_append_adds_nothing_and_the_next_one_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: int, code: int
) -> None:
    path = tmp_path / "a"
    with durable.Appender(path, sync=True) as appender:
        appender.append(b"old")
        monkeypatch.setattr(durable, "operations", Faults(allowed=allowed, code=code).operations)
        with pytest.raises(WriteError, match="cannot be written"):
            appender.append(b"lost")
        assert path.read_bytes() == b"old"
        appender.append(b"new")
    assert path.read_bytes() == b"oldnew"


def full_after(path: Path, room: int) -> durable.Operations:
    """A disk on which ``path`` can grow to ``room`` bytes only."""

    def write(descriptor: int, data: bytes | memoryview) -> int:
        left = room - path.stat().st_size
        if left <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.write(descriptor, data[:left])

    return dataclasses.replace(durable.operations, write=write)


@pytest.mark.parametrize("room", range(3, 8))
def test_record_that_does_not_fit_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    path = tmp_path / "a"
    with durable.Appender(path) as appender:
        appender.append(b"old")
        monkeypatch.setattr(durable, "operations", full_after(path, room))
        with pytest.raises(WriteError, match="no space left"):
            appender.append(b"too long")
        assert path.read_bytes() == b"old"


def test_record_that_could_not_be_taken_back_is_cut_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "fault")

    path = tmp_path / "a"
    good = durable.operations
    with durable.Appender(path) as appender:
        appender.append(b"old")
        broken = dataclasses.replace(full_after(path, 5), truncate=fail)
        monkeypatch.setattr(durable, "operations", broken)
        with pytest.raises(WriteError, match="no space left"):
            appender.append(b"too long")
        assert path.read_bytes() == b"oldto"
        with pytest.raises(WriteError, match="fault"):
            appender.append(b"still broken")
        monkeypatch.setattr(durable, "operations", good)
        appender.append(b"new")
    assert path.read_bytes() == b"oldnew"


def test_appender_keeps_the_good_bytes_of_an_existing_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"good|torn")
    with durable.Appender(tmp_path / "a", keep=5) as appender:
        appender.append(b"new")
    assert (tmp_path / "a").read_bytes() == b"good|new"


@pytest.mark.parametrize("code", ERRORS)
def test_failing_to_open_an_appender_leaves_no_open_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    count = iter(range(100))
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir())) if descriptors.exists() else 0

    def action() -> None:
        durable.Appender(tmp_path / f"{next(count)}").close()

    outcomes = sweep(monkeypatch, action, code=code)
    assert [faults.failed for faults, _ in outcomes] == ["open", "open", "fsync", "close", "close"]
    assert not before or len(list(descriptors.iterdir())) == before


def test_closed_appender_refuses_and_closes_again_in_silence(tmp_path: Path) -> None:
    appender = durable.Appender(tmp_path / "a")
    appender.close()
    appender.close()
    with pytest.raises(WriteError, match="bad file descriptor"):
        appender.append(b"x")


def test_sync_reports_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with durable.Appender(tmp_path / "a") as appender:
        appender.sync()
        monkeypatch.setattr(durable, "operations", Faults(allowed=0).operations)
        with pytest.raises(WriteError, match="a: cannot be written: input/output error"):
            appender.sync()


@pytest.mark.parametrize("torn", [b"", b'{"half":', b"x" * 10_000])
@pytest.mark.parametrize("lines", [0, 1, 500])
def test_reopening_lines_cuts_a_torn_last_one(tmp_path: Path, torn: bytes, lines: int) -> None:
    path = tmp_path / "events.jsonl"
    whole = b"".join(durable.encode_line({"number": i}) for i in range(lines))
    path.write_bytes(whole + torn)
    durable.append_line(path, {"number": "new"})
    assert path.read_bytes() == whole + durable.encode_line({"number": "new"})


def test_append_line_makes_the_file(tmp_path: Path) -> None:
    durable.append_line(tmp_path / "a.jsonl", {"x": 1})
    assert durable.decode_line((tmp_path / "a.jsonl").read_bytes()) == {"x": 1}


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


def test_safetensors_larger_than_a_chunk_are_hashed_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "_CHUNK_BYTES", 7)
    path = tmp_path / "a.safetensors"
    digest = durable.write_safetensors(path, {"a": durable.Blob("U8", (100,), bytes(range(100)))})
    assert path.read_bytes().endswith(bytes(range(100)))
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
