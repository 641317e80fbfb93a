"""Writes and reads the metric points of a run, and the names of their series.

``metrics.bin`` holds rows of 36 bytes, ``series.jsonl`` one ``{"id": 0, "name": "train/loss"}``
per line. One line reads all points, without this package:

    np.fromfile("metrics.bin", np.dtype([("series", "<u4"), ("attempt", "<u4"), ("step", "<i8"),
                                         ("time", "<f8"), ("value", "<f8"), ("crc", "<u4")]))

``time`` is in seconds since 1970 (UTC); ``crc`` is the CRC-32 of the 32 bytes before it.
"""

from __future__ import annotations

import struct
import time
import zlib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, final

from epochal import durable
from epochal.errors import RecordError, suggest
from epochal.records.layout.attempts import read_attempts, select_current_points
from epochal.records.layout.os_errors import explain_os_error, raising_record_errors
from epochal.text.formatting import format_count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    Rows = np.ndarray[tuple[int], np.dtype[np.void]]

POINT_FIELDS = (
    ("series", "<u4"),
    ("attempt", "<u4"),
    ("step", "<i8"),
    ("time", "<f8"),
    ("value", "<f8"),
    ("crc", "<u4"),
)
"""The fields of one row, as numpy names them."""

POINT_BYTES = 36
HEAD_BYTES = 32
"""The bytes that the last field, a CRC-32, covers."""

SMALL_FILE_BYTES = 1 << 20
"""Smaller files are read whole each time, which takes a few milliseconds."""

_MAX_BYTES = 1 << 34
_CHUNK_ROWS = 16_384  # fits into the cache of a CPU core


def count_valid_bytes(path: Path) -> int:
    """The size of a file up to its last valid row; 0 without a file."""
    try:
        file = durable.open_regular(path)
    except FileNotFoundError:
        return 0
    with file:
        end = file.seek(0, 2) // POINT_BYTES * POINT_BYTES
        while end:
            file.seek(end - POINT_BYTES)
            row = file.read(POINT_BYTES)
            if struct.pack("<I", zlib.crc32(row[:HEAD_BYTES])) == row[HEAD_BYTES:]:
                break
            end -= POINT_BYTES
    return end


def mask_valid_rows(rows: Rows) -> NDArray[np.bool_]:
    """A mask of the rows with a correct checksum."""
    import numpy as np

    data = rows.view(np.uint8).reshape(len(rows), POINT_BYTES)
    crcs = np.full(len(rows), zlib.crc32(bytes(HEAD_BYTES)), np.uint32)
    tables = _crc_tables()
    for start in range(0, len(rows), _CHUNK_ROWS):
        columns = np.ascontiguousarray(data[start : start + _CHUNK_ROWS, :HEAD_BYTES].T)
        chunk = crcs[start : start + _CHUNK_ROWS]
        for table, column in zip(tables, columns, strict=True):
            chunk ^= table[column]
    found: NDArray[np.bool_] = rows["crc"] == crcs
    return found


@cache
def _crc_tables() -> NDArray[np.uint32]:
    """For each position and value of a byte, what it changes in the CRC-32 of zeros."""
    import numpy as np

    def crc(value: int) -> int:
        return zlib.crc32(bytes([value])) ^ zlib.crc32(bytes(1))

    tables = [np.array([crc(value) for value in range(256)], np.uint32)]
    for _ in range(
        HEAD_BYTES - 1
    ):  # a CRC is linear: each byte further from the end is shifted once more
        tables.append((tables[-1] >> np.uint32(8)) ^ tables[0][tables[-1] & np.uint32(255)])
    return np.array(tables[::-1])


def get_point_dtype() -> np.dtype[Any]:
    """The numpy type of a row."""
    import numpy as np

    return np.dtype(list(POINT_FIELDS))


TRAIN_PREFIX = "train/"
EPOCH_MEAN_PREFIX = f"{TRAIN_PREFIX}epoch/"
"""Prefix of means over an epoch; other points of training are means over a few steps."""

INTERVAL_MEAN_PREFIX = f"{TRAIN_PREFIX}interval/"
"""Prefix of means since the previous evaluation, in runs that do not last epochs."""

MAX_SERIES = 100_000
MAX_NAME_LENGTH = 500

_pack_head = struct.Struct("<IIqdd").pack
_pack_crc = struct.Struct("<I").pack


def is_epoch_mean(name: str) -> bool:
    """Whether a series holds means over epochs or evaluation intervals, as results do."""
    return name.startswith((EPOCH_MEAN_PREFIX, INTERVAL_MEAN_PREFIX))


def is_probe(name: str) -> bool:
    """Whether the points of a series are of a probe; summaries of a run leave them out."""
    return "/probe/" in name


def is_step_mean(name: str) -> bool:
    """Whether the points of a series are means since the previous point, as in training."""
    return name.startswith(TRAIN_PREFIX) and not is_epoch_mean(name)


@final
class MetricWriter:
    """Appends points to the two metric files of a folder.

    One thread of one process may use it. The files appear with the first point.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ids: dict[str, int] = {}
        self._next_id = 0
        self._series: durable.Appender | None = None
        self._points: durable.Appender | None = None

    def log(self, points: Mapping[str, float], step: int, *, attempt: int = 0) -> None:
        """Append one point per name, in one write; when it raises, none was appended."""
        ids, now, rows = self._ids, time.time(), []
        name, value = "", 0.0
        try:
            for name, value in points.items():
                series = ids[name] if name in ids else self._add_series(name)
                head = _pack_head(series, attempt, step, now, value)
                rows.append(head)
                rows.append(_pack_crc(zlib.crc32(head)))
            if self._points is not None:
                self._points.append(b"".join(rows))
        except OSError as error:
            raise RecordError(explain_os_error(error)) from error
        except (struct.error, TypeError, ValueError, OverflowError) as error:
            raise RecordError(
                f"metric {name!r}: cannot be recorded: value {value!r} at step {step!r}\n"
                "  log a number at a whole step, such as run.log({'loss': 0.5}, step=10)"
            ) from error

    @property
    def num_points(self) -> int:
        """The number of points in the file, including those of earlier processes."""
        try:
            return count_valid_bytes(self._folder / "metrics.bin") // POINT_BYTES
        except OSError:  # it cannot be read
            return 0

    @raising_record_errors()
    def sync(self) -> None:
        """Sync all points to disk, so that they survive a power failure."""
        if self._points is not None:
            self._points.sync()

    @raising_record_errors()
    def close(self) -> None:
        """Close the files; the next ``log`` opens them again."""
        for appender in (self._points, self._series):
            if appender is not None:
                appender.close()
        self._points = self._series = None
        self._ids.clear()

    def _add_series(self, name: object) -> int:
        if self._series is None:
            self._series = self._open()
        is_name = isinstance(name, str) and 0 < len(name) <= MAX_NAME_LENGTH
        if not is_name or len(self._ids) >= MAX_SERIES:
            raise RecordError(
                f"metric {str(name)[:40]!r}: cannot start series {len(self._ids) + 1} of this run\n"
                "  use few names, such as 'val/acc', and log values at steps"
            )
        name = str(name)
        if name in self._ids:  # from an earlier process
            return self._ids[name]
        # Synced before a point refers to it: a point without a name is lost.
        self._series.append(durable.encode_line({"id": self._next_id, "name": name}))
        self._ids[name] = self._next_id
        self._next_id += 1
        return self._ids[name]

    def _open(self) -> durable.Appender:
        lines = durable.open_lines(self._folder / "series.jsonl", sync=True)
        path = self._folder / "metrics.bin"
        try:
            # Rows after the last valid one, left by a power failure, were never synced.
            self._points = durable.Appender(path, keep=count_valid_bytes(path))
        except OSError:
            lines.close()
            raise
        names, damaged = read_series_names(self._folder)
        self._ids.update((name, series) for series, name in names.items())
        # A damaged line had an id too, which points may use.
        self._next_id = max(max(names, default=-1) + 1, len(names) + damaged)
        return lines


@final
@dataclass(frozen=True, slots=True)
class Points:
    """All valid points of a run, and counts of damaged ones."""

    rows: Rows
    """Structured array with ``POINT_FIELDS``, in the order of logging."""

    names: Mapping[int, str]
    """Series number to metric name."""

    current: NDArray[np.bool_]
    """Mask of the rows that no later attempt replaced."""

    bad_rows: int = 0
    """Rows with a wrong checksum."""

    torn_bytes: int = 0
    """Bytes of an incomplete last row."""

    bad_names: int = 0
    """Damaged lines of ``series.jsonl``."""

    @property
    def damage(self) -> tuple[str, ...]:
        """One line for each kind of damage."""
        import numpy as np

        unnamed = sum(int(series) not in self.names for series in np.unique(self.rows["series"]))
        found = (
            (self.bad_rows, "metrics.bin: {} with a wrong checksum left out", "row"),
            (self.torn_bytes, "metrics.bin: an incomplete last row of {} left out", "byte"),
            (self.bad_names, "series.jsonl: {} left out", "damaged line"),
            (unnamed, "series.jsonl: the names of {} lost", "metric"),
        )
        return tuple(text.format(format_count(count, unit)) for count, text, unit in found if count)

    def series(self, name: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The steps and values of one metric, by step, without replaced points."""
        numbers = [number for number, known in self.names.items() if known == name]
        if not numbers:
            raise RecordError(explain_unknown_metric(name, list(self.names.values())))
        return self.series_of(numbers)

    def series_of(self, numbers: list[int]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The same by series numbers; a metric has several if its name was damaged once."""
        import numpy as np

        rows = self.rows[np.isin(self.rows["series"], numbers) & self.current]
        _, first_from_end = np.unique(rows["step"][::-1], return_index=True)
        rows = rows[len(rows) - 1 - first_from_end]  # the last value of each step
        return rows["step"].astype(np.int64), rows["value"].astype(np.float64)


def explain_unknown_metric(name: str, known: list[str]) -> str:
    """The message for an unknown metric."""
    hint = suggest(name, known) or f"this run recorded {len(known)} metrics"
    return f"{name}: no such metric\n  {hint}"


def read_metric_points(folder: Path) -> Points:
    """Every valid point of the run in ``folder``; damage is counted, never raised."""
    import numpy as np

    try:
        data = durable.read_bytes(folder / "metrics.bin", max_bytes=_MAX_BYTES)
    except OSError:  # a run that ended before its first point has no such file
        data = b""
    torn_bytes = len(data) % POINT_BYTES
    rows = np.frombuffer(data, get_point_dtype(), len(data) // POINT_BYTES)
    good = mask_valid_rows(rows)
    names, bad_names = read_series_names(folder)
    # ``kept_points`` counts all rows, but the attempt of a damaged one is unknown.
    numbers = np.where(good, rows["attempt"], 0)
    steps = np.where(good, rows["step"], 0)
    attempts = read_attempts(durable.find_object(folder / "run.json"))
    current = select_current_points(numbers, steps, attempts) & good
    return Points(rows[good], names, current[good], int((~good).sum()), torn_bytes, bad_names)


def read_points(folder: Path) -> Rows:
    """The points of the run in ``folder`` as a structured array of ``POINT_FIELDS``."""
    return read_metric_points(folder).rows


def read_series(folder: Path, name: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The steps and values of one metric of the run in ``folder``."""
    return read_metric_points(folder).series(name)


def read_series_names(folder: Path) -> tuple[dict[int, str], int]:
    """The names of series by number, and the number of damaged lines."""
    lines, damaged = read_json_lines(folder / "series.jsonl")
    names: dict[int, str] = {}
    for line in lines:
        number, name = line.get("id"), line.get("name")
        if isinstance(number, int) and isinstance(name, str) and number not in names:
            names[number] = name
        else:
            damaged += 1
    return names, damaged


def read_json_lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The valid lines of a JSON-lines file, and the number of damaged ones."""
    try:
        lines = durable.read_bytes(path).splitlines(keepends=True)
    except OSError:
        return [], 0
    values = [durable.decode_line(line) for line in lines if line.strip()]
    whole = [value for value in values if value is not None]
    return whole, len(values) - len(whole)


Library = Literal["pandas", "polars"]


def to_dataframe(points: Points, names: Sequence[str], library: Library) -> Any:  # noqa: ANN401 - of that library
    """A DataFrame with one row per step and one column per metric; all metrics without names."""
    import numpy as np

    names = names or sorted(set(points.names.values()))
    curves = {name: points.series(name) for name in names}
    steps = np.unique(np.concatenate([np.empty(0, np.int64), *(one[0] for one in curves.values())]))
    columns, missing = {}, {}
    for name, (own, values) in curves.items():
        places = np.searchsorted(steps, own)
        columns[name] = np.full(len(steps), np.nan)
        columns[name][places] = values
        missing[name] = np.ones(len(steps), bool)
        missing[name][places] = False
    if library == "pandas":
        return _require(library).DataFrame({"step": steps, **columns})
    polars = _require(library)
    frame = polars.DataFrame({"step": steps, **columns})
    holes = [
        polars.when(polars.Series(where)).then(None).otherwise(polars.col(name)).alias(name)
        for name, where in missing.items()
    ]
    return frame.with_columns(holes)


def _require(library: Library) -> Any:  # noqa: ANN401 - a module
    try:
        if library == "pandas":
            import pandas  # type: ignore[import-untyped]  # its stubs are a separate package

            return pandas
        import polars
    except ImportError as error:
        raise RecordError(
            f"{library}: is not installed\n  pip install {library}, or use .series(name) for numpy"
        ) from error
    return polars
