"""Images, sounds, texts and other files that a run shows, kept by kind.

A file is ``media/<kind>/<name>-<step>.<suffix>``; a line of ``events.jsonl`` tells of it. A name
that no path can hold is followed by ``~`` and its checksum: no two of them share a file.
"""

from __future__ import annotations

import csv
import io
import struct
import time
import zlib
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from epochal import durable
from epochal.errors import RecordError
from epochal.records.folder.folder import slugify
from epochal.records.layout.attempts import MAX_COUNT, find_valid_ranges, read_attempts
from epochal.records.layout.os_errors import raising_record_errors
from epochal.records.metrics.points import read_json_lines
from epochal.records.secrets import redact

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from epochal.records.folder.writer import Writer

MEDIA_EVENT = "media"
SUFFIXES_BY_KIND = {
    "image": ("png", "jpg", "jpeg", "gif", "webp", "svg", "bmp"),
    "audio": ("wav", "mp3", "flac", "ogg"),
    "video": ("mp4", "webm", "mov"),
    "text": ("txt", "md", "json", "html"),
    "table": ("csv", "tsv", "parquet"),
}
"""The suffixes of each kind, that of unnamed data first; whatever else is a ``file``."""

SEPARATORS = {"csv": ",", "tsv": "\t"}
"""What stands between the cells of tables that are texts, by suffix."""


@final
@dataclass(frozen=True, slots=True)
class Media:
    """One file that a run showed."""

    kind: str
    name: str
    step: int
    path: Path
    time: float = 0.0
    """Seconds since 1970."""

    @property
    def suffix(self) -> str:
        """What the file's name ends with, which says what is in it whatever its kind."""
        return self.path.suffix.lstrip(".")

    @property
    def title(self) -> str:
        """Its name and kind, by which it differs from a metric of the same name."""
        return f"{self.name}/{self.kind}"

    def read_text(self) -> str:
        """What is in it, whatever that is."""
        return self.path.read_text(encoding="utf-8", errors="replace")

    def iter_rows(self) -> Iterator[list[str]]:
        """The rows of a table that is a text, the first one too."""
        with self.path.open(encoding="utf-8", errors="replace", newline="") as file:
            yield from csv.reader(file, delimiter=SEPARATORS[self.suffix])


def save_media(
    writer: Writer, name: str, data: object, *, step: int, kind: str = "", suffix: str = ""
) -> Media | None:
    """Keep what a run shows at a step; None when nothing is recorded.

    Args:
        writer: The record of the run.
        name: What it shows, such as ``samples/grid``.
        data: An image as an array, of any layout that shows one; a figure or image with
            ``savefig`` or ``save``; text; the bytes of a file; or its path.
        step: When.
        kind: ``image``, ``audio``, ``video``, ``text``, ``table`` or a word of your own; known by
            itself for everything but bytes without ``suffix``.
        suffix: What the name of the file ends with, for bytes.
    """
    content, found = _encode(name, data)
    suffix = (suffix or found or SUFFIXES_BY_KIND.get(kind, ("",))[0]).lstrip(".").lower()
    if not suffix:
        raise RecordError(f"{name}: what kind of file is it?\n  say suffix='wav', or kind='audio'")
    kind = slugify(kind or get_media_kind(suffix), default="file")
    file = Path(MEDIA_EVENT, kind, f"{_file_name(name)}-{step:06}.{slugify(suffix, default='bin')}")
    if writer.path is None:
        return None
    with raising_record_errors():
        path = writer.path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        durable.write_bytes(path, content)
    writer.event(MEDIA_EVENT, media=kind, name=name, step=step, file=file.as_posix())
    return Media(kind, name, step, path, time.time())


def read_media(folder: Path, *, before: int = MAX_COUNT) -> list[Media]:
    """What the run in ``folder`` showed, by name and step, without what a later attempt redid.

    Args:
        folder: Of the run.
        before: Leaves out what this attempt and later ones showed.
    """
    lines = [
        line
        for line in read_json_lines(folder / "events.jsonl")[0]
        if line.get("kind") == MEDIA_EVENT
    ]
    attempts = read_attempts(durable.find_object(folder / "run.json"))
    numbers = {int(line.get("attempt", 0)) for line in lines}
    # Of files it is not known how many there were, only which step they belong to.
    by_step = [replace(one, kept_points=None) for one in attempts]
    limits = find_valid_ranges(dict.fromkeys(numbers, -MAX_COUNT), by_step) if attempts else {}
    found: dict[tuple[str, str, int], Media] = {}
    for line in lines:
        one, attempt = _read_one(folder, line), int(line.get("attempt", 0))
        limit = limits.get(attempt, (0, -1))[1] if attempts else MAX_COUNT
        if one is not None and attempt < before and one.step <= limit and one.path.is_file():
            found[one.kind, one.name, one.step] = one
    return [found[key] for key in sorted(found)]


def _read_one(folder: Path, line: dict[str, Any]) -> Media | None:
    kind, name, step, file = (line.get(key) for key in ("media", "name", "step", "file"))
    is_whole = all(isinstance(text, str) for text in (kind, name, file)) and isinstance(step, int)
    if not is_whole:
        return None
    when = _seconds(line.get("time"))
    return Media(str(kind), str(name), int(step or 0), folder / str(file), when)


def _seconds(text: object) -> float:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return 0.0


def _file_name(name: str) -> str:
    parts = [slugify(part, default="_") for part in name.split("/") if part] or ["_"]
    safe = "/".join(parts)
    if safe == name:
        return safe
    # No slug has a tilde, so that this is the file of no other name.
    return f"{safe}~{zlib.crc32(name.encode('utf-8', 'surrogatepass')):08x}"


def get_media_kind(suffix: str) -> str:
    """The kind of a file whose name ends so."""
    return next((kind for kind, known in SUFFIXES_BY_KIND.items() if suffix in known), "file")


def _encode(name: str, data: object) -> tuple[bytes, str]:
    """The bytes of a file, and its suffix if the data tells."""
    if isinstance(data, bytes):
        return data, ""
    if isinstance(data, str):
        return redact(data).encode("utf-8", "backslashreplace"), "txt"
    if isinstance(data, Path):
        return _read_file(data), data.suffix
    for method in ("savefig", "save"):  # those of matplotlib and Pillow
        if callable(draw := getattr(data, method, None)):
            buffer = io.BytesIO()
            draw(buffer, format="png")
            return buffer.getvalue(), "png"
    return encode_png(_to_pixels(name, data)), "png"


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise RecordError(f"{path}: cannot be read: {reason}\n  name a file to be kept") from error


def _to_pixels(name: str, data: object) -> NDArray[np.uint8]:
    """Rows, columns and 1 to 4 channels of bytes, from an image of any usual layout."""
    import numpy as np

    array = np.asarray(data)
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim == 3 and array.shape[2] > 4 >= array.shape[0]:  # channels first, as torch has it
        array = np.moveaxis(array, 0, 2)
    if array.ndim != 3 or not 1 <= array.shape[2] <= 4 or not array.size or array.dtype == object:
        raise RecordError(
            f"{name}: cannot be shown as an image: {type(data).__name__} of shape {array.shape}\n"
            "  give height x width, with 1 to 4 channels before or after"
        )
    if array.dtype.kind == "f":  # from 0 to 1
        array = np.nan_to_num(array.astype(np.float64)).clip(0, 1) * 255 + 0.5
    elif array.dtype.kind == "b":
        array = array * np.uint8(255)
    return np.ascontiguousarray(array.clip(0, 255).astype(np.uint8))


def encode_png(pixels: NDArray[np.uint8]) -> bytes:
    """The bytes of a PNG file; ``pixels`` has rows, columns and 1 to 4 channels."""
    height, width, channels = pixels.shape
    lines = b"".join(b"\0" + row.tobytes() for row in pixels)
    color = (0, 4, 2, 6)[channels - 1]  # grey, grey with alpha, RGB, RGB with alpha
    chunks: Sequence[tuple[bytes, bytes]] = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, color, 0, 0, 0)),
        (b"IDAT", zlib.compress(lines, 6)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
