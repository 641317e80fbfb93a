"""Runs as one file: packed, unpacked, and archives that are no run or unsafe are refused."""

from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING

import fsspec
import pytest

from comparing import make_run
from epochal.errors import RecordError
from epochal.records.archive import pack_run, unpack_run
from epochal.records.find import read_run
from epochal.records.layout.lease import holding_lease

if TYPE_CHECKING:
    from pathlib import Path

RUN = "20261114-100000-aaaa"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run with checkpoints on another disk."""
    found = tmp_path / "runs" / "digits" / "t" / RUN
    make_run(found)
    elsewhere = tmp_path / "disk"
    (elsewhere / "t-5").mkdir(parents=True)
    (elsewhere / "t-5" / "tensors.safetensors").write_bytes(b"weights" * 1000)
    (elsewhere / "last").symlink_to("t-5")
    if (found / "checkpoints").exists():
        (found / "checkpoints").rmdir()
    (found / "checkpoints").symlink_to(elsewhere)
    (found / "outside").symlink_to(tmp_path)
    (found / "lease.json").write_text("{}")
    return found


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "lease.json"
    }


def test_an_unpacked_run_has_all_files_of_the_packed_one(folder: Path, tmp_path: Path) -> None:
    (folder / "outside").unlink()
    for name in ("run.tar", "run.tar.gz"):
        pack_run(folder, str(tmp_path / name))
        found = unpack_run(str(tmp_path / name), tmp_path / name.replace(".", "-"))
        assert found.relative_to(tmp_path / name.replace(".", "-")).parts == ("digits", "t", RUN)
        expected = contents(folder) | {
            f"checkpoints/{name}": data for name, data in contents(folder / "checkpoints").items()
        }
        assert contents(found) == expected, name
        assert (found / "checkpoints" / "last").readlink().name == "t-5"
        assert (found / "checkpoints" / "last" / "tensors.safetensors").is_file()
        assert not (found / "lease.json").exists()
        assert read_run(found).summary.status == "finished"


def test_links_to_elsewhere_and_unwanted_checkpoints_are_left_out(
    folder: Path, tmp_path: Path
) -> None:
    pack_run(folder, str(tmp_path / "a.tar"), has_checkpoints=False)
    pack_run(folder, str(tmp_path / "b.tar"))
    for name, has_weights in {"a.tar": False, "b.tar": True}.items():
        with tarfile.open(tmp_path / name) as archive:
            names = archive.getnames()
        assert not [one for one in names if "outside" in one], name
        assert any("tensors" in one for one in names) is has_weights, name


def test_a_run_is_packed_to_and_unpacked_from_a_store(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "memory://box/run.tar"
    pack_run(folder, url)
    with pytest.raises(RecordError, match="exists already"):
        pack_run(folder, url)
    found = unpack_run(url, tmp_path / "there")
    with pytest.raises(RecordError, match="exists already\n  nothing was unpacked"):
        unpack_run(url, tmp_path / "there")
    assert read_run(found).summary.id == RUN
    with pytest.raises(RecordError, match="no such file or folder"):
        unpack_run("memory://box/gone.tar", tmp_path / "there")
    with pytest.raises(RecordError, match="unknown protocol"):
        unpack_run("s5://box/gone.tar", tmp_path / "there")
    fsspec.filesystem("memory").store.clear()


def test_a_running_run_is_not_packed(folder: Path, tmp_path: Path) -> None:
    (folder / "lease.json").unlink()
    with holding_lease(folder), pytest.raises(RecordError, match="is running"):
        pack_run(folder, str(tmp_path / "a.tar"))
    assert not (tmp_path / "a.tar").exists()


def test_archives_that_are_unsafe_or_no_run_leave_nothing_behind(tmp_path: Path) -> None:
    link, device = tarfile.TarInfo(f"{RUN}/a"), tarfile.TarInfo(f"{RUN}/a")
    link.type, link.linkname = tarfile.SYMTYPE, "../../secret"
    device.type = tarfile.CHRTYPE
    for reason, entry in {
        "a link to another folder": link,
        "neither a file nor a folder": device,
        "not a path below the folder": tarfile.TarInfo("../a"),
        "holds no run": tarfile.TarInfo("notes/a"),
    }.items():
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as archive:
            archive.addfile(entry)
        (tmp_path / "a.tar").write_bytes(data.getvalue())
        with pytest.raises(RecordError, match=reason):
            unpack_run(str(tmp_path / "a.tar"), tmp_path / "runs")
        assert not list((tmp_path / "runs").iterdir()), reason
    (tmp_path / "a.tar").write_bytes(b"no tar file")
    with pytest.raises(RecordError, match="is not a readable tar file"):
        unpack_run(str(tmp_path / "a.tar"), tmp_path / "runs")
    with pytest.raises(RecordError, match="gone"):
        unpack_run(str(tmp_path / "gone.tar"), tmp_path / "runs")


def test_an_archive_that_cannot_be_written_needs_another_place(
    folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "a file").write_text("")
    with pytest.raises(RecordError) as caught:
        pack_run(folder, str(tmp_path / "a file" / "run.tar"))
    assert str(caught.value).endswith("\n  name another place")


def test_what_is_no_file_cannot_be_unpacked(tmp_path: Path) -> None:
    for name, what in (("gone.tar", "no such file"), (".", "is a folder")):
        source = str(tmp_path / name)
        with pytest.raises(RecordError) as caught:
            unpack_run(source, tmp_path / "runs")
        assert str(caught.value) == f"{source}: {what}\n  name a file that `epochal pack` wrote"
        assert not any((tmp_path / "runs").iterdir())


def test_the_commands_say_where_the_run_is(epochal, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "box").mkdir()
    packed = epochal("pack", folder, tmp_path / "box")
    assert f"packed {RUN}, " in packed.out
    assert (tmp_path / "box" / f"{RUN}.tar").is_file()
    done = epochal("unpack", tmp_path / "box" / f"{RUN}.tar", "--runs-dir", tmp_path / "there")
    assert done.out == f"unpacked {tmp_path}/there/digits/t/{RUN}\n"
