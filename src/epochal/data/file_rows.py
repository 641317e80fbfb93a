"""The rows of a file as a dataset, for ``epochal predict --input``."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from torch.utils.data import Dataset
from typing_extensions import override

from epochal.config.source_file import display_name
from epochal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

_SUFFIXES = (".jsonl", ".json", ".csv", ".parquet", ".npz")


@final
class FileRows(Dataset[Any]):
    """The rows of a JSON lines, CSV, Parquet or NumPy file, as dicts of columns.

    Numbers and lists of numbers become tensors. A task's ``input_sample(row)`` turns a row into a
    sample of its own form.

    Args:
        path: The file.
    """

    draws_random = False

    def __init__(self, *, path: str) -> None:
        self._rows = _read(Path(path).expanduser())
        self.prepare: Callable[[dict[str, Any]], Any] = _to_tensors
        """Turns a row into a sample."""

    def __len__(self) -> int:
        return len(self._rows)

    @override
    def __getitem__(self, index: int) -> Any:
        return self.prepare(self._rows[index])


def _read(path: Path) -> list[dict[str, Any]]:
    shown = display_name(path)
    if path.suffix not in _SUFFIXES:
        raise DataError(f"{shown}: cannot read this kind of file\n  use {', '.join(_SUFFIXES)}")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{shown}: cannot be read: {error.strerror}\n  check --input") from error
    try:
        rows = _parse(path.suffix, data)
    except ValueError as error:
        raise DataError(f"{shown}: cannot be read as {path.suffix[1:]}: {error}") from error
    if not rows or not all(isinstance(row, dict) for row in rows):
        hint = 'write one object per line, such as {"text": "..."}'
        raise DataError(f"{shown}: has no rows with named columns\n  {hint}")
    return rows


def _parse(suffix: str, data: bytes) -> list[dict[str, Any]]:
    if suffix == ".jsonl":
        return [json.loads(line) for line in data.decode().splitlines() if line.strip()]
    if suffix == ".json":
        found = json.loads(data)
        return found if isinstance(found, list) else [found]
    if suffix == ".csv":
        lines = csv.DictReader(io.StringIO(data.decode(), newline=""))
        return [{key: _number(text) for key, text in row.items()} for row in lines]
    if suffix == ".npz":
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            columns = {name: arrays[name] for name in arrays.files}
        count = min((len(one) for one in columns.values()), default=0)
        return [{name: one[index] for name, one in columns.items()} for index in range(count)]
    from epochal.engine.prediction_file import import_parquet

    _, parquet, _ = import_parquet()
    rows: list[dict[str, Any]] = parquet.read_table(io.BytesIO(data)).to_pylist()
    return rows


def _number(text: Any) -> Any:  # noqa: ANN401 - a cell
    for kind in (int, float):
        try:
            return kind(text)
        except (TypeError, ValueError):
            continue
    return text


def _to_tensors(row: dict[str, Any]) -> dict[str, Any]:
    return {name: _to_tensor(value) for name, value in row.items()}


def _to_tensor(value: Any) -> Any:  # noqa: ANN401 - a cell
    if isinstance(value, bool | int | float | np.ndarray | np.generic):
        return torch.as_tensor(value)
    if isinstance(value, list):
        try:
            return torch.tensor(value)
        except (TypeError, ValueError):
            return value
    return value
