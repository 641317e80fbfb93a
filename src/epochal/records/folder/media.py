"""Saves and reads the images, audio, texts and other files that a run logs.

A file is ``media/<kind>/<name>-<step>.<suffix>``, listed in ``events.jsonl``. If the name is not
safe for a path, ``~`` and its checksum are added, so that no two names share a file.
"""

from __future__ import annotations

import csv
import io
import struct
import time
import zlib
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, final

from epochal import durable
from epochal.errors import RecordError
from epochal.records.folder.folder import slugify
from epochal.records.layout.attempts import MAX_COUNT, find_valid_ranges, read_attempts
from epochal.records.layout.os_errors import describe_os_error, raising_record_errors
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
"""The suffixes of each kind, the default one first; others are a ``file``."""

_PICTURES = ("image", "video")
"""The kinds that an array can have; the frames of a video are drawn side by side."""

SEPARATORS = {"csv": ",", "tsv": "\t"}
"""The separator of text tables, by suffix."""


@final
@dataclass(frozen=True, slots=True)
class Media:
    """One logged file."""

    kind: str
    name: str
    step: int
    path: Path
    time: float = 0.0
    """Seconds since 1970."""

    @property
    def suffix(self) -> str:
        """The suffix of the file, without the dot."""
        return self.path.suffix.lstrip(".")

    @property
    def title(self) -> str:
        """Name and kind, which differs from a metric of the same name."""
        return f"{self.name}/{self.kind}"

    def read_text(self) -> str:
        """The content as text."""
        return durable.read_text(self.path)

    def iter_rows(self) -> Iterator[list[str]]:
        """The rows of a text table, including the header."""
        with (
            durable.open_regular(self.path) as file,
            io.TextIOWrapper(file, encoding="utf-8", errors="replace", newline="") as text,
        ):
            yield from csv.reader(text, delimiter=SEPARATORS[self.suffix])


def save_media(
    writer: Writer, name: str, data: object, *, step: int, kind: str = "", suffix: str = ""
) -> Media | None:
    """Save a file at a step; None if the run is not recorded.

    Args:
        writer: The record of the run.
        name: A name such as ``samples/grid``.
        data: An image as an array of any usual layout; a figure or image with ``savefig`` or
            ``save``; a data frame; text; the bytes of a file; or its path.
        step: The current step.
        kind: ``image``, ``audio``, ``video``, ``text``, ``table`` or any other word; by default
            that of the suffix. Needed for bytes without ``suffix``.
        suffix: The suffix of the file, for bytes.
    """
    content, found = _encode(name, data, kind or get_media_kind(suffix.lstrip(".").lower()))
    suffix = (suffix or found or SUFFIXES_BY_KIND.get(kind, ("",))[0]).lstrip(".").lower()
    if not suffix:
        raise RecordError(
            f"{name}: the kind of file is unknown\n  pass suffix='wav' or kind='audio'"
        )
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
    """The files that the run in ``folder`` logged, by kind, name and step, without replaced ones.

    Args:
        folder: The folder of the run.
        before: Leave out this attempt and later ones.
    """
    lines = [
        line
        for line in read_json_lines(folder / "events.jsonl")[0]
        if line.get("kind") == MEDIA_EVENT
    ]
    attempts = read_attempts(durable.find_object(folder / "run.json"))
    numbers = {int(line.get("attempt", 0)) for line in lines}
    # ``kept_points`` counts metric points; files are selected by step.
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
    place = PurePosixPath(str(file))
    if not is_whole or place.is_absolute() or ".." in place.parts or (folder / place).is_symlink():
        return None  # a record from other users may name any file
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
    # Slugs contain no tilde, so this cannot be the file of another name.
    return f"{safe}~{zlib.crc32(name.encode('utf-8', 'surrogatepass')):08x}"


def get_media_kind(suffix: str) -> str:
    """The kind of a file with this suffix."""
    return next((kind for kind, known in SUFFIXES_BY_KIND.items() if suffix in known), "file")


def _encode(name: str, data: object, kind: str) -> tuple[bytes, str]:
    """The bytes of a file, and its suffix if it follows from the data."""
    if isinstance(data, bytes):
        return data, ""
    if isinstance(data, str):
        text = redact(data).encode("utf-8", "backslashreplace")
        return text, "csv" if kind == "table" else "txt"
    if isinstance(data, Path):
        return _read_file(data), data.suffix
    if (rows := _to_csv(data)) is not None:
        return redact(rows).encode("utf-8", "backslashreplace"), "csv"
    for method in ("savefig", "save"):  # of matplotlib and Pillow
        if callable(draw := getattr(data, method, None)):
            buffer = io.BytesIO()
            draw(buffer, format="png")
            return buffer.getvalue(), "png"
    if kind in SUFFIXES_BY_KIND and kind not in _PICTURES:
        raise RecordError(
            f"{name}: a {type(data).__name__} cannot be saved as {kind}\n"
            f"  give a path, or the bytes of a .{SUFFIXES_BY_KIND[kind][0]} file"
        )
    return encode_png(to_pixels(name, data)), "png"


def _to_csv(data: object) -> str | None:
    """The text of a data frame of pandas or polars; None for anything else."""
    if callable(write := getattr(data, "to_csv", None)):
        is_numbered = type(getattr(data, "index", None)).__name__ == "RangeIndex"
        return str(write(index=not is_numbered))
    write = getattr(data, "write_csv", None)
    return str(write()) if callable(write) else None


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        reason = describe_os_error(error)
        raise RecordError(f"{path}: cannot be read: {reason}\n  name a file that exists") from error


def to_pixels(name: str, data: object) -> NDArray[np.uint8]:
    """An image of any usual layout as bytes: height, width, 1 to 4 channels."""
    import numpy as np

    array = _to_array(data)
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim == 3 and array.shape[2] > 4 >= array.shape[0]:  # channels first, as in torch
        array = np.moveaxis(array, 0, 2)
    has_pixels = array.ndim == 3 and 1 <= array.shape[2] <= 4 and array.size
    if not has_pixels or array.dtype.kind not in "biuf":
        raise RecordError(
            f"{name}: cannot be shown as an image: {type(data).__name__} of shape {array.shape}"
            f" and type {array.dtype}\n  give height x width, with 1 to 4 channels before or after"
        )
    if array.dtype.kind == "f":  # from 0 to 1
        array = np.nan_to_num(array.astype(np.float64)).clip(0, 1) * 255 + 0.5
    elif array.dtype.kind == "b":
        array = array * np.uint8(255)
    return np.ascontiguousarray(array.clip(0, 255).astype(np.uint8))


def _to_array(data: object) -> NDArray[Any]:
    import numpy as np

    try:
        return np.asarray(data)
    except ValueError:  # rows of different lengths
        return np.asarray(None)


def encode_png(pixels: NDArray[np.uint8]) -> bytes:
    """The bytes of a PNG file; ``pixels`` has height, width and 1 to 4 channels."""
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
