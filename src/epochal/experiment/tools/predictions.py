"""Writes predictions as JSON lines, one per sample if outputs can be split."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from epochal import durable

if TYPE_CHECKING:
    from pathlib import Path


def write_predictions(path: Path, value: object) -> int:
    """Write the value of a ``predict`` run; returns the number of lines.

    Outputs of a batch are split by samples if all their lists and tensors have the same length;
    a single number of a batch is repeated.
    """
    lines = [durable.encode_json(line) + b"\n" for line in _lines(value)]
    durable.write_bytes(path, b"".join(lines))
    return len(lines)


def _lines(value: object) -> Iterator[object]:
    if isinstance(value, Mapping):  # outputs of several loaders, by name
        for name, batches in value.items():
            for line in _lines(batches):
                yield {"loader": name, **line} if isinstance(line, dict) else [name, line]
        return
    for batch in value if isinstance(value, Sequence) else (value,):
        yield from _samples(_to_plain(batch))


def _samples(batch: object) -> Iterator[object]:
    if isinstance(batch, dict):
        columns = {name: value for name, value in batch.items() if isinstance(value, list)}
        if len({len(column) for column in columns.values()}) == 1:
            shared = {name: value for name, value in batch.items() if name not in columns}
            for row in zip(*columns.values(), strict=True):
                yield shared | dict(zip(columns, row, strict=True))
            return
    if isinstance(batch, list):
        yield from batch
    else:
        yield batch


def _to_plain(value: object) -> object:
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _to_plain(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(child) for child in value]
    if hasattr(value, "tolist"):
        return value.tolist()
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
