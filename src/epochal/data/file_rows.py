"""The rows of a file as a dataset, for ``epochal predict --input``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from torch.utils.data import Dataset
from typing_extensions import override

from epochal.config.source_file import display_name
from epochal.data.chain import Chain
from epochal.data.files import find_files, local_path
from epochal.data.sources import Csv, Jsonl, Parquet, Text
from epochal.durable.remote import hide_credentials, is_url
from epochal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

_SOURCES = {".jsonl": Jsonl, ".csv": Csv, ".parquet": Parquet, ".txt": Text}
_SUFFIXES = (*_SOURCES, ".json", ".npz")


def require_row_format(path: str) -> None:
    """Refuse a file whose name does not end like one of the formats that have rows."""
    if Path(path).suffix not in _SUFFIXES:
        what = f"{_show(path)}: cannot read this kind of file"
        raise DataError(f"{what}\n  use {', '.join(_SUFFIXES)}")


def _show(path: str) -> str:
    return hide_credentials(path) if is_url(path) else display_name(Path(path))


@final
class FileRows(Dataset[Any]):
    """The rows of a JSON lines, CSV, Parquet, NumPy or text file, as dicts of columns.

    A line of a text file is a row with the column ``text``. Numbers and lists of numbers become
    tensors. A task's ``input_sample(row)`` turns a row into a sample of its own form.

    Args:
        path: The file, or its URL.
    """

    draws_random = False

    def __init__(self, *, path: str) -> None:
        self._rows = _open(path)
        self.prepare: Callable[[dict[str, Any]], Any] = _to_tensors
        """Turns a row into a sample."""

    def __len__(self) -> int:
        return len(self._rows)

    @override
    def __getitem__(self, index: int) -> Any:
        return self.prepare(self._rows[index])


def _open(path: str) -> Any:  # noqa: ANN401 - a list, or a chain, which is read like one
    require_row_format(path)
    suffix, shown = Path(path).suffix, _show(path)
    (file,) = find_files(path)
    try:
        rows = _open_source(suffix, file) if suffix in _SOURCES else _parse(local_path(file))
        is_good = len(rows) > 0 and isinstance(rows[0], dict)
    except (OSError, ValueError) as error:
        raise DataError(f"{shown}: cannot be read as {suffix[1:]}: {error}") from error
    if not is_good:
        hint = 'write one object per line, such as {"text": "..."}'
        raise DataError(f"{shown}: has no rows with named columns\n  {hint}")
    return rows


def _open_source(suffix: str, file: str) -> Chain:
    rows = Chain(_SOURCES[suffix](file))
    return rows.then(_name_line) if suffix == ".txt" else rows


def _name_line(line: str) -> dict[str, str]:
    return {"text": line}


def _parse(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".json":
        found = json.loads(path.read_bytes())
        return found if isinstance(found, list) else [found]
    with np.load(path, allow_pickle=False) as arrays:
        columns = {name: arrays[name] for name in arrays.files}
    sizes = {name: len(one) if one.ndim else 0 for name, one in columns.items()}
    if len(set(sizes.values())) > 1:
        shown = ", ".join(f"{name!r} {size}" for name, size in sizes.items())
        raise ValueError(f"its arrays have different numbers of rows: {shown}\n  give all the same")
    count = min(sizes.values(), default=0)
    return [{name: one[index] for name, one in columns.items()} for index in range(count)]


def _to_tensors(row: dict[str, Any]) -> dict[str, Any]:
    return {name: _to_tensor(value) for name, value in row.items()}


def _to_tensor(value: Any) -> Any:  # noqa: ANN401 - a cell
    if isinstance(value, bool | int | float | np.ndarray | np.generic):
        return torch.as_tensor(value)
    if isinstance(value, list):
        try:
            return torch.tensor(value)
        except (RuntimeError, TypeError, ValueError):  # RuntimeError: of a list with null
            return value
    return value
