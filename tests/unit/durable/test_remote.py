"""Files behind URLs: copied once, written whole, and refused before anything is connected to."""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING, Any

import fsspec
import pytest

from epochal.durable.remote import (
    RemoteError,
    fetch,
    find_url_problem,
    hide_credentials,
    is_url,
    open_input,
    open_output,
    to_local,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An empty store of fsspec, and a cache of its own."""
    monkeypatch.setenv("EPOCHAL_DATA_CACHE", str(tmp_path / "cache"))
    store = fsspec.filesystem("memory")
    store.store.clear()
    yield store
    store.store.clear()


def test_only_urls_of_other_stores_are_urls() -> None:
    for path, expected in {
        "s3://bucket/a": True,
        "simplecache::s3://bucket/a": False,
        "file:///data/a": False,
        "data/a": False,
        "C:/data": False,
    }.items():
        assert is_url(path) is expected, path
    assert str(to_local("file:///data/a%20b")) == "/data/a b"


def test_credentials_are_left_out_of_messages(memory: Any) -> None:
    secret = "memory://me:word@host/a.bin?X-Amz-Signature=abc"
    assert hide_credentials(secret) == "memory://host/a.bin"
    with pytest.raises(RemoteError) as caught:
        fetch(secret)
    assert "word" not in str(caught.value)
    assert "abc" not in str(caught.value)


def test_unknown_protocols_and_missing_packages_say_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    monkeypatch.setitem(sys.modules, "paramiko", None)
    for url, expected in {
        "memory://a/b": None,
        "gs://a/b": ("gs:// needs gcsfs, which is not installed", "pip install gcsfs"),
        "sftp://a/b": ("sftp:// needs paramiko, which is not installed", "pip install paramiko"),
        "s5://a/b": (
            "unknown protocol 's5'",
            "known are s3, gs, abfs, https, sftp and others",
        ),
    }.items():
        assert find_url_problem(url) == expected, url
    monkeypatch.setitem(sys.modules, "fsspec.registry", None)
    assert find_url_problem("s3://a/b") == (
        "needs fsspec, which is not installed",
        "pip install 'epochal[fsspec]'",
    )


def test_a_folder_is_copied_with_all_files_if_it_has_the_marker(memory: Any) -> None:
    memory.pipe({"/box/run/manifest.json": b"{}", "/box/run/inner/a.bin": b"1"})
    found = fetch("memory://box/run", marker="manifest.json")
    assert (found / "inner" / "a.bin").read_bytes() == b"1"
    assert fetch("memory://box/run/", marker="manifest.json").name.endswith("-run")
    memory.pipe("/box/run/inner/a.bin", b"22")
    again = fetch("memory://box/run", marker="manifest.json")
    assert (again / "inner" / "a.bin").read_bytes() == b"22"
    assert not [one for one in found.parent.iterdir() if one.name.startswith(".")]
    for url in ("memory://box/gone", "memory://box/gone.bin"):
        with pytest.raises(RemoteError, match=r"memory://box/gone.*no such file or folder"):
            fetch(url, marker="manifest.json")


def test_an_error_of_a_store_is_not_one_of_the_cache(
    memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.pipe("/a.bin", b"1")
    for error, message in (
        (FileNotFoundError("memory://a.bin"), "^memory://a.bin: no such file or folder$"),
        (OSError(errno.ECONNREFUSED, "refused"), "^memory://a.bin: .*refused\n  check the name"),
        (OSError(errno.ENOSPC, "no space left"), "a.bin: cannot be written: no space left"),
    ):

        def fail(*_: object, error: OSError = error) -> None:
            raise error

        monkeypatch.setattr(memory, "get_file", fail)
        with pytest.raises(RemoteError, match=message):
            fetch("memory://a.bin")


def test_a_written_file_is_there_as_a_whole_or_not_at_all(memory: Any, tmp_path: Path) -> None:
    for target in ("memory://box/a.tar", str(tmp_path / "new" / "a.tar"), f"file://{tmp_path}/b"):
        with pytest.raises(ZeroDivisionError), open_output(target) as file:
            assert file.write(b"half") / 0
        assert not memory.store, target
        assert not [one for one in tmp_path.rglob("*") if one.is_file()], target
        with open_output(target) as file:
            file.write(b"whole")
        with open_input(target) as file:
            assert file.read() == b"whole", target
        with pytest.raises(RemoteError, match="exists already"), open_output(target):
            pass
        memory.store.clear()
        to_local(target).unlink(missing_ok=True)


def test_copies_that_were_not_used_for_days_are_removed_by_the_next_copy(
    memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kept() -> set[str]:
        return {path.name[25:] for path in (tmp_path / "cache").iterdir()}

    for name in "abc":
        memory.pipe(f"/{name}", name.encode())
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "notes-that-are-not-ours.txt").touch()
    for path in (fetch("memory://a"), fetch("memory://b"), *(tmp_path / "cache").iterdir()):
        os.utime(path, (0, path.stat().st_mtime))
    changed = fetch("memory://b").stat().st_mtime_ns
    fetch("memory://c")
    assert {"a", "b", "c"} < kept()  # nothing is removed unless it is asked for
    monkeypatch.setenv("EPOCHAL_DATA_CACHE_DAYS", "30")
    memory.pipe("/d", b"d")
    fetch("memory://d")
    assert kept() & {"a", "b", "c", "d"} == {"b", "c", "d"}
    assert (tmp_path / "cache" / "notes-that-are-not-ours.txt").exists()
    assert fetch("memory://b").stat().st_mtime_ns == changed
