"""Datasets: arrays in memory, samples of a list, and samples that are repeated."""

from __future__ import annotations

import builtins
from functools import partial
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate
from typing_extensions import override

from epochal.engine.feed.in_memory import InMemoryDataset
from epochal.engine.feed.seeded_dataset import may_draw
from epochal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from epochal.engine.interfaces.task import Batch


@final
class Tensors(InMemoryDataset):
    """A dataset of the rows of arrays: ``Tensors(x, y)`` or ``Tensors(image=x, label=y)``.

    Batches are lists in the first form and dicts in the second. Arrays are shared if torch can
    share them, else copied.

    Args:
        arrays: Tensors, numpy arrays, or anything else that ``torch.as_tensor`` takes.
        resident: True: the run keeps a copy on its device until it trains with another dataset or
            ends. Tensors that were written to are copied again for the next epoch; writes
            through numpy are not noticed. False: each batch is copied. None, the default: data
            of at most 64 MiB are copied once per epoch, batches of larger data one by one.
        named: Arrays by name; ``resident`` cannot be one.

    Raises:
        DataError: Arrays are missing, are not arrays, or have different lengths, or ``resident``
            is none of True, False and None.
    """

    def __init__(self, *arrays: object, resident: bool | None = None, **named: object) -> None:
        if not isinstance(resident, bool | None):
            raise DataError(
                f"Tensors: resident must be True, False or None, got a {type(resident).__name__}\n"
                "  give an array of that name another name"
            )
        if bool(arrays) == bool(named):
            raise DataError(
                "Tensors: takes arrays either by position or by name\n"
                "  write Tensors(x, y) or Tensors(image=x, label=y)"
            )
        labels = list(named) or [f"array {number}" for number in range(1, len(arrays) + 1)]
        self.tensors = tuple(map(_as_tensor, labels, [*arrays, *named.values()]))
        self.names = tuple(named)
        self.is_resident = resident
        _require_equal(labels, self.tensors)

    def __len__(self) -> int:
        return len(self.tensors[0])

    @override
    def __getitem__(self, index: int) -> Batch:
        rows = [tensor[index] for tensor in self.tensors]
        return self.pack(rows) if self.names else tuple(rows)

    def __getitems__(self, indices: Sequence[int]) -> TensorRows:
        """The samples at some indices, gathered at once; DataLoader calls this."""
        chosen = torch.as_tensor(indices, dtype=torch.int64, device=self.tensors[0].device)
        return TensorRows(self, [tensor[chosen] for tensor in self.tensors])

    def gather(self, indices: Tensor) -> Batch:
        """The batch of the samples at some indices."""
        return self.pack([tensor.index_select(0, indices) for tensor in self.tensors])

    def loader(
        self, *, batch_size: int = 32, shuffle: bool = False, drop_last: bool = False
    ) -> DataLoader[Any]:
        """A loader of these samples; a run shuffles it by its seed."""
        return DataLoader(
            self,
            batch_size=batch_size,
            shuffle=shuffle,
            drop_last=drop_last,
            collate_fn=self.collate,
        )

    @override
    def pack(self, columns: Iterable[Tensor]) -> Batch:
        return dict(zip(self.names, columns, strict=True)) if self.names else list(columns)

    @staticmethod
    @override
    def collate(samples: TensorRows | list[Batch]) -> Batch:
        return samples.batch if isinstance(samples, TensorRows) else default_collate(samples)


@final
class TensorRows:
    """Samples that were gathered at once: as a batch, or one by one for another collate."""

    def __init__(self, dataset: Tensors, columns: list[Tensor]) -> None:
        self.batch = dataset.pack(columns)
        self._dataset = dataset
        self._columns = columns

    def __len__(self) -> int:
        return len(self._columns[0])

    def __getitem__(self, index: int) -> Batch:
        rows = [column[index] for column in self._columns]
        return self._dataset.pack(rows) if self._dataset.names else tuple(rows)

    def __iter__(self) -> Iterator[Batch]:
        return (self[index] for index in range(len(self)))


def _as_tensor(label: str, value: object) -> Tensor:
    """A value as a tensor with rows; memory of numpy is shared if possible."""
    try:
        tensor = torch.as_tensor(_shareable(label, value)).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(
            f"Tensors: {label}, a {type(value).__name__}, cannot become a tensor: {error}\n"
            "  give a tensor, or an array of numbers"
        ) from error
    if tensor.layout != torch.strided or not tensor.ndim:
        what = "has no rows" if not tensor.ndim else f"is {tensor.layout}"
        raise DataError(f"Tensors: {label} {what}\n  give one row for each sample")
    return tensor.resolve_conj().resolve_neg().contiguous()


def _shareable(label: str, value: object) -> object:
    """The value, or a copy if torch cannot share its memory.

    Torch shares no arrays that are read-only, reversed or of another byte order.
    """
    if not isinstance(value, np.ndarray):
        return value
    if isinstance(value, np.ma.MaskedArray):
        raise DataError(
            f"Tensors: {label} is a masked array, and a tensor has no mask\n"
            "  give array.filled(0), and np.ma.getmaskarray(array) as another array"
        )
    if not value.dtype.isnative:
        return value.astype(value.dtype.newbyteorder("="))
    is_backwards = min(value.strides, default=0) < 0
    return value if value.flags.writeable and not is_backwards else value.copy()


def _require_equal(labels: list[str], tensors: tuple[Tensor, ...]) -> None:
    for label, tensor in zip(labels, tensors, strict=True):
        if len(tensor) != len(tensors[0]):
            raise DataError(
                f"Tensors: {label} has {len(tensor)} rows, and {labels[0]} has {len(tensors[0])}\n"
                "  give one row for each sample"
            )
        if tensor.device != tensors[0].device:
            raise DataError(
                f"Tensors: {label} is on {tensor.device}, and {labels[0]} on {tensors[0].device}\n"
                "  give all of them on one device; resident=True copies them to that of the run"
            )


class ListDataset(Dataset[Any]):
    """A dataset to subclass: a list of samples, how one is loaded, and its transforms.

    A subclass overrides ``list_samples`` and ``load``, or one of them.

    Args:
        samples: The list; null: what ``list_samples`` returns.
        transforms: Functions that change a loaded sample, one after the other.
        slice: Which samples are used: start, stop and step, as in Python.

    Raises:
        DataError: There are no samples, or the slice has not 1 to 3 numbers.
    """

    def __init__(
        self,
        samples: Sequence[Any] | None = None,
        *,
        transforms: Sequence[Callable[[Any], Any]] = (),
        slice: Sequence[int | None] | None = None,
    ) -> None:
        listed = self.list_samples() if samples is None else samples
        if slice is not None and not 1 <= len(slice) <= 3:
            raise DataError(
                f"{type(self).__name__}: slice has {len(slice)} numbers\n"
                "  write [stop], [start, stop] or [start, stop, step]"
            )
        self.samples = listed if slice is None else listed[builtins.slice(*slice)]
        """The samples of the list that are used."""

        self.transforms = transforms

    def list_samples(self) -> Sequence[Any]:
        """All samples in their order, such as paths with labels; called once."""
        raise DataError(
            f"{type(self).__name__}: has no samples\n  give samples, or override list_samples"
        )

    def load(self, sample: Any) -> Any:  # noqa: ANN401 - the user chooses what a sample is
        """What a batch gets of one sample of the list, before the transforms; it by default."""
        return sample

    def __len__(self) -> int:
        return len(self.samples)

    @override
    def __getitem__(self, index: int) -> Any:
        sample = self.load(self.samples[index])
        for transform in self.transforms:
            sample = transform(sample)
        return sample


@final
class Repeated(Dataset[Any]):
    """Each sample several times, each time with another index and other random numbers."""

    def __init__(self, dataset: Any, times: int) -> None:  # noqa: ANN401 - of any kind
        self.dataset = dataset
        self.times = times
        self.draws_random = may_draw(dataset)
        """Whether reading a sample may draw random numbers."""

        if hasattr(dataset, "__getitems__"):  # else samples are read, and seeded, one by one
            self.__getitems__ = partial(_take, dataset)

    def __len__(self) -> int:
        return self.times * len(self.dataset)

    @override
    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(f"{index} is not below {len(self)}")
        return self.dataset[index % len(self.dataset)]


def _take(dataset: Any, indices: Sequence[int]) -> Any:  # noqa: ANN401 - of any kind
    """The samples at some indices, read by the ``__getitems__`` of the dataset."""
    length = len(dataset)
    return dataset.__getitems__([index % length for index in indices])
