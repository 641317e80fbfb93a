"""Samples in tar files, as WebDataset writes them."""

from __future__ import annotations

import io
import json
import tarfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

from epochal.data.files import local_path
from epochal.data.pipe import Item, Pass, Pipe
from epochal.data.sources import read_image
from epochal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_DECODERS: dict[str, Callable[[bytes], Any]] = {
    "txt": bytes.decode,
    "json": json.loads,
    "cls": int,
    **dict.fromkeys(("jpg", "jpeg", "png", "webp"), lambda data: read_image(io.BytesIO(data))),
}


@final
class WebDataset(Pipe):
    """The samples of tar files whose paths the pipe before gives.

    Files of a tar with the same name up to the first dot are one sample: a dict by the rest of
    the name, with the name as ``__key__``. Put ``split_by_worker`` before it, so that each worker
    reads its own files.

    Args:
        decode: Turn txt, json, cls and images into values; otherwise all values are bytes.
    """

    gives = "stream"

    def __init__(self, *, decode: bool = True) -> None:
        self.decode = decode

    @override
    def iterate(self, one_pass: Pass, start: int = 0) -> Iterator[Item]:
        number = 0
        for path in self.parent.iterate(one_pass):
            with _naming_tar(path), tarfile.open(local_path(path)) as tar:
                for key, members in _group(tar):
                    number += 1
                    if number > start:  # those before are skipped without being read
                        yield self._read(tar, path, key, members)

    def _read(
        self, tar: tarfile.TarFile, path: str, key: str, members: list[tarfile.TarInfo]
    ) -> Item:
        sample: dict[str, Any] = {"__key__": key}
        for member in members:
            name, data = member.name[len(key) + 1 :], _read_bytes(tar, member)
            decode = _DECODERS.get(name.rpartition(".")[2].lower()) if self.decode else None
            try:
                sample[name] = data if decode is None else decode(data)
            except (OSError, SyntaxError, ValueError) as error:  # of Pillow, too
                what = f"data: {path}: {member.name} cannot be decoded"
                hint = "correct the file, or set decode: false"
                raise DataError(f"{what}: {error}\n  {hint}") from error
        return sample


@contextmanager
def _naming_tar(path: str) -> Iterator[None]:
    """Name the file in the error of a tar that cannot be read."""
    try:
        yield
    except tarfile.TarError as error:
        reason = str(error).partition("\n")[0].rstrip(":")
        what = f"data: {path} cannot be read as a tar file: {reason}"
        raise DataError(f"{what}\n  it may be damaged, or written only in part") from error


def _read_bytes(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    """A file of a tar, read without the two objects that ``extractfile`` puts around it."""
    if member.issparse():
        file = tar.extractfile(member)
        return b"" if file is None else file.read()
    tar.fileobj.seek(member.offset_data)
    return tar.fileobj.read(member.size)


def _group(tar: tarfile.TarFile) -> Iterator[tuple[str, list[tarfile.TarInfo]]]:
    """The files of each sample, which are next to each other."""
    key, members = "", list[tarfile.TarInfo]()
    for member in tar:
        folder, slash, name = member.name.rpartition("/")
        if not member.isfile() or name.startswith("._"):  # macOS adds files with these names
            continue
        found = f"{folder}{slash}{name.partition('.')[0]}"
        if found != key and members:
            yield key, members
            members = []
        key = found
        members.append(member)
    if members:
        yield key, members
