"""A sink that writes the points of each step to one file, in a line format."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from typing_extensions import override

from epochal import durable
from epochal.engine.tracking.mirror import Entry, Sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from epochal.records.folder.media import Media


@final
class LineFileSink(Sink):
    """Writes a new file and appends to it; ignores media.

    Args:
        path: The file.
        encode: Returns the lines of one entry.
        head: The first bytes of the file.
    """

    def __init__(self, path: Path, encode: Callable[[Entry], bytes], *, head: bytes = b"") -> None:
        self._encode = encode
        self._file = durable.Appender(path, keep=0)
        if head:
            self._file.append(head)

    @override
    def write(self, entries: list[Entry]) -> None:
        self._file.append(b"".join(map(self._encode, entries)))

    @override
    def show(self, media: Media) -> None:
        pass

    @override
    def read_known(self, names: Iterable[str]) -> dict[str, int]:
        return {}

    @override
    def has(self, media: Media) -> bool:
        return False

    @override
    def close(self, *, has_failed: bool) -> None:
        self._file.close()
