"""A file of predictions, written batch by batch; a killed prediction resumes where it ended."""

from __future__ import annotations

import logging
import os
from time import monotonic
from typing import TYPE_CHECKING, Any, final

from epochal import durable
from epochal.durable.system import lock
from epochal.engine.samples import iter_rows
from epochal.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SYNC_SECONDS = 2.0
logger = logging.getLogger(__name__)


@final
class PredictionFile:
    """Rows of predictions, as JSON lines or, by its suffix, as Parquet.

    Rows are written to a hidden file beside it, which is renamed at the end. Another hidden file
    has the number of batches on disk: the next prediction with the same facts starts there.

    Args:
        path: The file; a ``.parquet`` file is converted at the end.
        facts: What the predictions depend on, such as weights and data.
    """

    def __init__(self, path: Path, facts: Mapping[str, Any]) -> None:
        self.path = path
        self._partial = find_partial(path)
        self._progress = path.with_name(f".{path.name}.progress.tmp")
        self._facts = durable.decode_json(durable.encode_json(dict(facts)))
        has_partial = self._partial.exists()
        self._lock = _lock(self._partial, path)
        found = durable.find_object(self._progress)
        if found.get("facts") != self._facts or not has_partial:
            found = {}
        self._loaders: dict[str, int] = dict(found.get("batches") or {})
        self._samples: dict[str, int] = dict(found.get("samples") or {})
        self.rows = int(found.get("rows", 0))
        """How many rows it has."""

        self._bytes = int(found.get("bytes", 0))
        self._file = durable.Appender(self._partial, keep=self._bytes)
        self._synced_at = monotonic()
        if self.rows:
            logger.info("%s: resumed after %d predictions", path, self.rows)

    def count_batches(self, loader: str) -> int:
        """How many batches of a loader are written already."""
        return self._loaders.get(loader, 0)

    def count_samples(self, loader: str) -> int:
        """How many samples these batches had; stages may have left out some."""
        return self._samples.get(loader, 0)

    def add(self, loader: str, batch: object, *, samples: int = 0) -> None:
        """Write the rows of a batch; ``samples`` counts those of the loader up to here."""
        rows = list(iter_rows(batch))
        if loader:
            rows = [
                {"loader": loader, **row} if isinstance(row, dict) else [loader, row]
                for row in rows
            ]
        data = b"".join(durable.encode_json(row) + b"\n" for row in rows)
        if data:
            self._file.append(data)
        self.rows += len(rows)
        self._bytes += len(data)
        self._loaders[loader] = self.count_batches(loader) + 1
        self._samples[loader] = samples
        if monotonic() - self._synced_at > _SYNC_SECONDS:
            self.save_progress()

    def save_progress(self) -> None:
        """Sync what is written, so that it is never predicted again."""
        self._file.sync()
        facts = {"batches": self._loaders, "samples": self._samples, "facts": self._facts}
        durable.write_json(self._progress, facts | {"rows": self.rows, "bytes": self._bytes})
        self._synced_at = monotonic()

    def close(self, *, is_whole: bool) -> None:
        """End it; without ``is_whole`` it is continued later."""
        try:
            self._close(is_whole=is_whole)
        finally:
            os.close(self._lock)

    def _close(self, *, is_whole: bool) -> None:
        if not is_whole and self.rows:
            self.save_progress()
            self._file.close()
            return
        self._file.sync()
        self._file.close()
        if self._progress.exists():
            durable.remove_file(self._progress)
        if not is_whole:
            durable.remove_file(self._partial)
            return
        if self.path.suffix == ".parquet":
            _convert(self._partial, self.path)
        else:
            durable.rename(self._partial, self.path)


def find_partial(path: Path) -> Path:
    """The hidden file with the predictions of a file that is not whole yet."""
    return path.with_name(f".{path.name}.tmp")


def _lock(partial: Path, path: Path) -> int:
    """An open file that is locked until it is closed; ConfigError if another process has it."""
    descriptor = os.open(partial, os.O_RDWR | os.O_CREAT, 0o666)
    if lock(descriptor, waits=False) is False:
        os.close(descriptor)
        what = f"another process is writing predictions to {path.name!r}"
        raise ConfigError(Problem("output", what, hint="wait for it, or name another file"))
    return descriptor


def _convert(lines: Path, target: Path) -> None:
    _, parquet, read_json = import_parquet()
    staged = target.with_name(f".{target.name}.parquet.tmp")
    parquet.write_table(read_json(lines), staged)
    durable.rename(staged, target)
    durable.remove_file(lines)


def import_parquet() -> tuple[Any, Any, Any]:
    """pyarrow, its Parquet module, and its reader of JSON lines."""
    try:
        import pyarrow  # type: ignore[import-untyped]  # it has no types
        from pyarrow import parquet
        from pyarrow.json import read_json  # type: ignore[import-untyped]  # same
    except ModuleNotFoundError as error:
        what, hint = "Parquet needs pyarrow", "pip install 'epochal[frame]', or use JSON lines"
        raise ConfigError(Problem("outputs", what, hint=hint)) from error
    return pyarrow, parquet, read_json
