"""Compares the first batch of a loader with what the task says about its batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from epochal.errors import DataError

if TYPE_CHECKING:
    from epochal.engine.interfaces.task import Batch

BatchSpec = Mapping[Any, Mapping[str, Any]]  # by key of the batch, or number in a tuple

_MAX_SHOWN = 3
_KEYS = ("shape", "dtype", "range")


def checked_batches(
    batches: Iterator[Batch], spec: BatchSpec, label: str, *, may_lack: bool
) -> Iterator[Batch]:
    """The batches; DataError before the first one if it does not fit."""

    def first() -> Iterator[Batch]:
        for batch in islice(batches, 1):
            problems = find_batch_problems(batch, spec, may_lack=may_lack)
            if problems:
                shown = "".join(f"\n  {one}" for one in problems[:_MAX_SHOWN])
                raise DataError(
                    f"{label}: its first batch is not as task.batch_spec says{shown}\n"
                    "  change the data or batch_spec; `epochal inspect data` shows samples"
                )
            yield batch

    return chain(first(), batches)


def find_batch_problems(batch: Batch, spec: BatchSpec, *, may_lack: bool = False) -> list[str]:
    """How a batch differs from ``task.batch_spec``; entries that are not there may be allowed.

    The spec has ``shape`` (None for any size), ``dtype`` and ``range`` of each entry, such as
    ``{"image": {"shape": (None, 3, 32, 32), "dtype": "float32", "range": (0, 1)}}``.
    """
    if not isinstance(batch, Mapping | list | tuple):
        batch = [batch]
    entries: Mapping[Any, Any] = batch if isinstance(batch, Mapping) else dict(enumerate(batch))
    found: list[str] = []
    for name, wanted in spec.items():
        if name not in entries:
            has = ", ".join(map(repr, entries))
            found += [] if may_lack else [f"{name!r} is not in the batch, which has {has}"]
            continue
        array = np.asarray(to_plain(entries[name]))
        shape, dtype, span = map(wanted.get, _KEYS)
        if shape is not None and not _fits(array.shape, shape):
            found.append(f"{name!r} has the shape {_show(array.shape)}, expected {_show(shape)}")
        got = _name_dtype(getattr(entries[name], "dtype", array.dtype))
        if dtype is not None and got != _name_dtype(dtype):
            found.append(f"{name!r} is {got}, expected {_name_dtype(dtype)}")
        if span is not None and array.size and not span[0] <= array.min() <= array.max() <= span[1]:
            least, most = array.min(), array.max()
            found.append(f"{name!r} is from {least} to {most}, expected {span[0]} to {span[1]}")
        found += [
            f"{name!r} has {key!r} in batch_spec, expected shape, dtype or range"
            for key in wanted
            if key not in _KEYS
        ]
    return found


def _fits(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    return len(shape) == len(wanted) and all(
        two is None or one == two for one, two in zip(shape, wanted, strict=True)
    )


def _show(shape: tuple[int | None, ...]) -> str:
    return f"({', '.join('any' if size is None else str(size) for size in shape)})"


def _name_dtype(dtype: Any) -> str:  # noqa: ANN401 - of torch or NumPy, or a text
    return str(getattr(dtype, "__name__", dtype)).removeprefix("torch.")


def to_plain(value: Any) -> Any:  # noqa: ANN401 - an entry of a batch
    """A tensor as an array; anything else as it is."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        return (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()
    return value
