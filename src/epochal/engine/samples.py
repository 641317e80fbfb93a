"""Columns of samples as rows of plain data, for files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


def iter_rows(batch: object) -> Iterator[object]:
    """The samples of a batch as plain data, one by one.

    A batch is split if all its lists and tensors have the same length; a number that belongs to the
    whole batch is repeated.
    """
    batch = to_plain(batch)
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


def to_plain(value: object) -> object:
    """A value without tensors and arrays."""
    if isinstance(value, Mapping):
        return {str(key): to_plain(child) for key, child in value.items()}
    if isinstance(value, list | tuple | range):
        return [to_plain(child) for child in value]
    if hasattr(value, "tolist"):
        return value.tolist()
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
