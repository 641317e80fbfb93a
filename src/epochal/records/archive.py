"""Packs a run folder into a tar file, to copy or archive it, and unpacks it."""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
from contextlib import ExitStack, contextmanager
from typing import IO, TYPE_CHECKING, cast, final
from uuid import uuid4

from epochal import durable
from epochal.durable.beneath import open_beneath
from epochal.durable.remote import RemoteError, hide_credentials, open_input, open_output
from epochal.errors import RecordError
from epochal.records.code.unpack_limits import why_unsafe
from epochal.records.folder.folder import CHECKPOINTS_DIR, slugify
from epochal.records.folder.reader import read_folder
from epochal.records.layout.lease import HEARTBEAT_FILE, LEASE_FILE, RESERVE_FILE, is_owner_alive
from epochal.records.layout.os_errors import explain_os_error
from epochal.records.layout.run_folders import is_run_folder
from epochal.text.formatting import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_LOCKS = (LEASE_FILE, HEARTBEAT_FILE, RESERVE_FILE)
"""Files of the process that works on a run."""

_MAX_FILES = 200_000
_WANTED = "name a file that `epochal pack` wrote"


def pack_run(folder: Path, target: str, *, has_checkpoints: bool = True) -> int:
    """Write a run that has ended to a new tar file or URL; returns the size of its files.

    A name that ends in .gz is compressed.

    Raises:
        RecordError: The run is alive, the target exists, or it cannot be written.
    """
    if is_owner_alive(folder, durable.find_object(folder / LEASE_FILE)):
        raise RecordError(
            f"{folder.name}: is running, so its files change\n"
            "  wait for its end, or stop it: epochal stop"
        )
    is_zipped = target.endswith("gz")
    with _explaining_errors(), open_output(target) as file:
        return write_archive(folder, file, is_whole=has_checkpoints, is_zipped=is_zipped)


def write_archive(
    folder: Path,
    output: IO[bytes],
    *,
    is_whole: bool = False,
    is_zipped: bool = True,
    admit: Callable[[int, int], None] = lambda count, size: None,
) -> int:
    """Write the files of a run folder as tar; returns their size.

    Only regular files that are not hidden are written. Checkpoints and links to neighbouring
    entries are written only if the whole run is packed. ``admit`` is called before each file, with
    the number and the size of the files so far.
    """
    total = 0
    with ExitStack() as stack:
        if is_zipped:
            output = stack.enter_context(cast("IO[bytes]", gzip.GzipFile("", "wb", 1, output)))
        archive = stack.enter_context(tarfile.open(fileobj=output, mode="w|"))
        for number, (base, name, shown) in enumerate(_iter_files(folder, is_whole=is_whole)):
            entry = tarfile.TarInfo(f"{folder.name}/{shown}")
            path = base / name
            if is_whole and path.is_symlink() and "/" not in str(path.readlink()):
                entry.type, entry.linkname = tarfile.SYMTYPE, str(path.readlink())
                archive.addfile(entry)
                continue
            try:
                file = durable.open_regular(path) if is_whole else open_beneath(base, name)
            except OSError:  # a link, no regular file, or deleted since
                continue
            with file:
                facts = os.fstat(file.fileno())
                total += facts.st_size
                admit(number, total)
                entry.size, entry.mtime, entry.mode = facts.st_size, int(facts.st_mtime), 0o600
                archive.addfile(entry, _FixedSizeReader(file, facts.st_size))
    return total


def _iter_files(folder: Path, *, is_whole: bool) -> Iterator[tuple[Path, str, str]]:
    """Each file or link: a folder, the name below that folder, and the name below the run."""
    for name in _iter_names(folder):
        if not name.startswith(f"{CHECKPOINTS_DIR}/") and name not in (CHECKPOINTS_DIR, *_LOCKS):
            yield folder, name, name
    if is_whole:  # they may be on another disk, behind a link
        checkpoints = folder / CHECKPOINTS_DIR
        for name in _iter_names(checkpoints):
            yield checkpoints, name, f"{CHECKPOINTS_DIR}/{name}"


def _iter_names(folder: Path) -> Iterator[str]:
    for path, folders, names in os.walk(folder):
        folders.sort()
        inner = os.path.relpath(path, folder)
        links = [one for one in folders if os.path.islink(f"{path}/{one}")]  # noqa: PTH114 - a str
        for name in sorted([*names, *links]):
            yield name if inner == "." else f"{inner}/{name}".replace(os.sep, "/")


@final
class _FixedSizeReader:
    """Reads a fixed number of bytes from a file that may grow or shrink while it is read."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._left = file, size

    def read(self, count: int = -1, /) -> bytes:
        """The next bytes; zeros if the file has become shorter."""
        wanted = self._left if count < 0 else min(count, self._left)
        data = self._file.read(wanted)
        self._left -= wanted
        return data.ljust(wanted, b"\0")


def unpack_run(source: str, runs_dir: Path) -> Path:
    """Unpack a run from a tar file or URL, completely or not at all; returns its folder.

    It gets its place below ``runs_dir`` by project, tag and id. Nothing in it is executed.

    Raises:
        RecordError: It is not an archive of one run, it is unsafe, or the run already exists.
    """
    durable.make_dir(runs_dir, exist_ok=True)
    staging = runs_dir / f".unpacked-{uuid4().hex}"
    try:
        with _explaining_errors(), _open_archive(source) as file:
            name = _extract(source, file, staging)
            whole = staging / name
            if not is_run_folder(whole):
                raise _error(source, "holds no run", _WANTED)
            run = read_folder(whole).summary
            parent = runs_dir / slugify(run.project, default="default")
            parent = parent / slugify(run.tag, default="untagged")
            if (parent / name).exists():
                raise RecordError(f"{parent / name}: exists already\n  nothing was unpacked")
            durable.make_dir(parent, exist_ok=True)
            durable.rename(whole, parent / name)
            return parent / name
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _extract(source: str, file: IO[bytes], staging: Path) -> str:
    """Write the files of an archive below a folder; returns the one name at its top."""
    staging.mkdir(mode=0o700)
    tops, total = set[str](), 0
    try:
        with tarfile.open(fileobj=file, mode="r|*") as archive:
            for number, entry in enumerate(archive):
                total += entry.size
                problem = why_unsafe(entry.name) or _find_entry_problem(entry, number, staging)
                if problem:
                    raise _error(source, f"{entry.name!r}: {problem}", "nothing was unpacked")
                tops.add(entry.name.partition("/")[0])
                if len(tops) > 1:
                    raise _error(source, "holds several folders", "name an archive of one run")
                path = staging / entry.name
                path.parent.mkdir(parents=True, exist_ok=True)
                if entry.issym():
                    path.symlink_to(entry.linkname)
                elif entry.isreg() and (content := archive.extractfile(entry)) is not None:
                    durable.write_stream(path, content)
    except (tarfile.TarError, EOFError) as error:
        raise _error(
            source, f"is not a readable tar file: {error}", "pack the run again"
        ) from error
    if not tops:
        raise _error(source, "is empty", "pack the run again")
    return tops.pop()


def _find_entry_problem(entry: tarfile.TarInfo, number: int, staging: Path) -> str:
    if number >= _MAX_FILES:
        return f"more than {_MAX_FILES} files"
    if entry.issym():
        return "a link to another folder" if "/" in entry.linkname or ".." in entry.linkname else ""
    if entry.isdir():
        return ""
    if not entry.isreg() or entry.issparse():
        return "neither a file nor a folder"
    free = shutil.disk_usage(staging).free
    if entry.size > free:
        return f"needs {format_bytes(entry.size)}, and the disk has {format_bytes(free)} free"
    return ""


def _error(source: str, what: str, hint: str) -> RecordError:
    return RecordError(f"{hide_credentials(source)}: {what}\n  {hint}")


@contextmanager
def _open_archive(source: str) -> Iterator[IO[bytes]]:
    with ExitStack() as stack:
        try:
            file = stack.enter_context(open_input(source))
        except FileNotFoundError as error:
            raise _error(source, "no such file", _WANTED) from error
        except IsADirectoryError as error:
            raise _error(source, "is a folder", _WANTED) from error
        yield file


@contextmanager
def _explaining_errors() -> Iterator[None]:
    try:
        yield
    except RemoteError as error:
        raise RecordError(str(error)) from error
    except OSError as error:
        text = explain_os_error(error, elsewhere="name another place")
        raise RecordError(text) from error
