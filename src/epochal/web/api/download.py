"""Downloads: the record of a run as one file, and the weights of its checkpoints."""

from __future__ import annotations

import os
import re
import tarfile
import tempfile
from typing import IO, TYPE_CHECKING, final

from epochal.durable.beneath import open_beneath
from epochal.records.folder.checkpoint_manifests import find_checkpoints
from epochal.web.site.api_error import ApiError, not_found
from epochal.web.site.routes import FileAnswer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from epochal.web.site.routes import ApiCall
    from epochal.web.site.site import Site

MAX_RECORD_BYTES = 200 << 20
_MAX_FILES = 20_000
_CHECKPOINTS = "checkpoints"
WEIGHTS_FILE = "tensors.safetensors"
_FINAL = "final"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


def download_run(site: Site, call: ApiCall) -> FileAnswer:
    """The regular files of a run as .tar.gz, without checkpoints; links are left out."""
    folder = site.folder(call.path["id"])
    output = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed when it was sent
    try:
        _pack(folder, output)
    except BaseException:
        output.close()
        raise
    size = output.tell()
    output.seek(0)
    return FileAnswer(output, size, f"{_to_name(folder.name)}.tar.gz")


def _pack(folder: Path, output: IO[bytes]) -> None:
    total = 0
    with tarfile.open(fileobj=output, mode="w:gz", compresslevel=1) as archive:
        for number, name in enumerate(_iter_names(folder)):
            try:
                file = open_beneath(folder, name)
            except OSError:  # a link, or deleted since
                continue
            with file:
                facts = os.fstat(file.fileno())
                total += facts.st_size
                if total > MAX_RECORD_BYTES or number >= _MAX_FILES:
                    raise ApiError(
                        413,
                        f"the record is larger than {MAX_RECORD_BYTES >> 20} MB",
                        "copy its folder instead",
                    )
                entry = tarfile.TarInfo(f"{folder.name}/{name}")
                entry.size, entry.mtime, entry.mode = facts.st_size, int(facts.st_mtime), 0o600
                archive.addfile(entry, _Exactly(file, facts.st_size))


@final
class _Exactly:
    """A file that may grow or shrink while it is read, as one of a fixed size."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._left = file, size

    def read(self, count: int = -1, /) -> bytes:
        """The next bytes; zeros for those that are gone."""
        wanted = self._left if count < 0 else min(count, self._left)
        data = self._file.read(wanted)
        self._left -= wanted
        return data.ljust(wanted, b"\0")


def _iter_names(folder: Path) -> Iterator[str]:
    for path, folders, names in os.walk(folder):
        inner = os.path.relpath(path, folder)
        folders[:] = sorted(one for one in folders if inner != "." or one != _CHECKPOINTS)
        for name in sorted(names):
            yield name if inner == "." else f"{inner}/{name}".replace(os.sep, "/")


def download_weights(site: Site, call: ApiCall) -> FileAnswer:
    """The weights file of a checkpoint, or the final weights."""
    folder, name = site.folder(call.path["id"]), call.path["name"]
    found = find_checkpoints(folder / _CHECKPOINTS)
    known = {one.name: f"{_CHECKPOINTS}/{one.path.name}/{WEIGHTS_FILE}" for one in found}
    known.setdefault(_FINAL, f"{_CHECKPOINTS}/{_FINAL}.safetensors")
    if name not in known:
        raise not_found()
    if any(one.name == name and one.is_in_parts for one in found):
        what = "the weights of this checkpoint are in parts, one for each process"
        raise ApiError(409, what, "download the final weights, or load it with init_from")
    try:
        file = open_beneath(folder, known[name])
    except OSError:
        raise not_found() from None
    size = os.fstat(file.fileno()).st_size
    return FileAnswer(file, size, f"{_to_name(folder.name)}-{_to_name(name)}.safetensors")


def _to_name(text: str) -> str:
    return _UNSAFE.sub("-", text)[:100].strip(".-") or "run"
