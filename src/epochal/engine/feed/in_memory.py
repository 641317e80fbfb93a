"""Gathers batches of in-memory data at once, equal to what the DataLoader would return."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, NamedTuple, final
from weakref import ref

import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    default_collate,
)

from epochal.engine.device.move import MoveBatch, keep_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from epochal.engine.feed.sampling_order import DataPass
    from epochal.engine.feed.static_inputs import StaticInputs
    from epochal.engine.interfaces.task import Batch, Loader

    Pack = Callable[[Iterable[Tensor]], Batch]

_DTYPES = {
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
}

_BATCHES_PER_BLOCK = 256  # whose views are made at once
_SMALL_BYTES = 64 * 2**20  # data of this size are copied to the device by default


class InMemoryDataset(Dataset[Any], ABC):
    """A dataset whose samples are the rows of a few tensors of equal length."""

    tensors: tuple[Tensor, ...]
    is_resident: bool | None
    """Whether a run keeps a copy on its device; None copies small data for each pass."""

    @abstractmethod
    def pack(self, columns: Iterable[Tensor]) -> Batch:
        """A batch of tensors that are in the order of ``tensors``."""

    @staticmethod
    @abstractmethod
    def collate(samples: Any) -> Batch:  # noqa: ANN401 - of any type
        """A batch of what ``__getitems__`` returned."""


@final
class InMemoryLoaders:
    """Gathers the batches of loaders whose data are in memory; ignores other loaders.

    ``is_pinned`` gathers into page-locked memory, for asynchronous copies to the device.
    """

    def __init__(self, move: MoveBatch = keep_batch, *, is_pinned: bool = False) -> None:
        self._move = move
        self._is_pinned = is_pinned
        self._device_copies: dict[int, _DeviceCopy] = {}
        self._train_dataset_id = -1

    def find(
        self, loader: Loader, one_pass: DataPass, static_inputs: StaticInputs | None = None
    ) -> InMemoryPass | None:
        """The batches of a pass, in the order of the loader's sampler, if they can be gathered."""
        is_training = one_pass.epoch is not None
        if is_training:
            self._release_previous(getattr(loader, "dataset", None), static_inputs)
        table = find_in_memory_source(loader)
        if table is None:
            return None
        owner = table.owner
        is_resident = owner.is_resident if isinstance(owner, InMemoryDataset) else None
        is_pinned = self._is_pinned and table.tensors[0].device.type == "cpu"
        is_small = is_resident is None and is_pinned and _is_small(table.tensors)
        if is_resident or (is_small and is_training):
            resident = self._copy_to_device(table, static_inputs, is_kept=bool(is_resident))
            columns, are_images = resident.columns, resident.are_images
        elif is_small:  # freed after an evaluation, since there may be several
            columns, are_images = _make_rows_contiguous(tuple(map(self._move, table.tensors)))
        else:
            batches = table.batches(table.tensors, one_pass, is_pinned=is_pinned)
            return InMemoryPass(batches, is_moved=False)
        if any(are_images):
            table, static_inputs = table._replace(pack=_image_packer(table.pack, are_images)), None
        return InMemoryPass(
            table.batches(columns, one_pass, static_inputs=static_inputs), is_moved=True
        )

    @staticmethod
    def can_gather(loader: Loader) -> bool:
        """Whether the batches of a loader can be gathered."""
        return find_in_memory_source(loader) is not None

    def _copy_to_device(
        self, table: InMemorySource, static_inputs: StaticInputs | None, *, is_kept: bool
    ) -> _DeviceCopy:
        """The tensors of a dataset on the device, as they are now.

        If ``is_kept``, tensors whose version did not change are not copied again.
        """
        key, residents = id(table.owner), self._device_copies
        versions = [(id(tensor), _version(tensor)) for tensor in table.tensors]
        known = residents.get(key)
        if known is not None and is_kept and known.versions == versions:
            return known
        if known is not None and known.is_copy and _have_same_shapes(known.sources, table.tensors):
            # Into the same memory, which a graph may read.
            parts = zip(known.columns, table.tensors, known.are_images, strict=True)
            for column, tensor, is_image in parts:
                column.copy_(tensor.permute(0, 2, 3, 1) if is_image else tensor)
            residents[key] = known._replace(sources=table.tensors, versions=versions)
            return residents[key]
        residents.pop(key, None)  # first, since the device may not have room for both
        known = None
        if static_inputs is not None:
            static_inputs.release_data()
        moved = tuple(map(self._move, table.tensors))
        # Removed with the dataset, whose id may be used again.
        owner = ref(table.owner, lambda _: residents.pop(key, None))
        is_copy = not any(map(_share_memory, moved, table.tensors))
        residents[key] = _DeviceCopy(
            owner, table.tensors, versions, *_make_rows_contiguous(moved), is_copy
        )
        return residents[key]

    def _release_previous(self, dataset: object, static_inputs: StaticInputs | None) -> None:
        """Release the data of the previous training dataset if it was replaced."""
        if self._train_dataset_id != id(dataset):
            self._device_copies.pop(self._train_dataset_id, None)
            self._train_dataset_id = id(dataset)
            if static_inputs is not None:
                static_inputs.release_data()


class _DeviceCopy(NamedTuple):
    """A dataset on the device."""

    owner: ref[Dataset[Any]]
    sources: tuple[Tensor, ...]
    versions: list[tuple[int, int]]
    """Ids and versions of the sources when they were copied."""

    columns: tuple[Tensor, ...]
    are_images: list[bool]
    """Which columns have their channels last."""

    is_copy: bool
    """Whether columns may be overwritten; data that were on the device are the user's."""


class InMemoryPass(NamedTuple):
    """A pass over in-memory data."""

    batches: Iterator[Batch]
    is_moved: bool
    """Whether the batches are on the device."""


class InMemorySource(NamedTuple):
    """In-memory data and the order in which a loader reads them."""

    owner: Dataset[Any]
    tensors: tuple[Tensor, ...]
    pack: Pack
    batch_size: int
    drop_last: bool
    is_shuffled: bool

    def batches(
        self,
        columns: tuple[Tensor, ...],
        one_pass: DataPass,
        *,
        is_pinned: bool = False,
        static_inputs: StaticInputs | None = None,
    ) -> Iterator[Batch]:
        """The batches of one pass over ``columns``, which replace the tensors."""
        length = len(columns[0])
        used = length - length % self.batch_size if self.drop_last else length
        first = min(one_pass.start * self.batch_size, used)
        share = one_pass.share
        if not self.is_shuffled and static_inputs is None and share is None:
            parts = [_split(column[first:used], self.batch_size) for column in columns]
            copy = _copier(self.pack, is_pinned=is_pinned)
            return map(copy, zip(*parts, strict=True))
        if self.is_shuffled:
            generator = torch.Generator().manual_seed(one_pass.seed)
            order = torch.randperm(length, generator=generator, device="cpu")[first:used]
        else:
            order = torch.arange(first, used)
        device = columns[0].device
        if device.type == "cuda":
            order = order.pin_memory()
        order = order.to(device, non_blocking=True)
        select = _selector(columns, self.pack, is_pinned=is_pinned)
        pieces = _split(order, self.batch_size)
        if share is not None:
            return (select(part) for _, _, part in share.of_indices(pieces, one_pass.start))
        if static_inputs is None:
            return map(select, pieces)
        return static_inputs.gather_batches(columns, self.pack, order, pieces, select)


def find_in_memory_source(loader: Loader) -> InMemorySource | None:
    """The data of a loader, if gathering gives the same batches as the loader.

    It must be a plain DataLoader with samplers of torch and without workers. Subclasses may change
    anything, so they are ignored.
    """
    if type(loader) is not DataLoader or loader.num_workers:
        return None
    dataset, batch_sampler = loader.dataset, loader.batch_sampler
    if type(batch_sampler) is not BatchSampler:
        return None
    sampler = batch_sampler.sampler
    rows = _find_rows(dataset, loader.collate_fn)
    if rows is None or not _reads_each_row_once(sampler, dataset):
        return None
    is_shuffled = type(sampler) is RandomSampler
    return InMemorySource(
        dataset, *rows, batch_sampler.batch_size, batch_sampler.drop_last, is_shuffled
    )


def _reads_each_row_once(sampler: object, dataset: Dataset[Any]) -> bool:
    """Whether a sampler is one of torch's that read each sample of the dataset once."""
    if getattr(sampler, "data_source", None) is not dataset:
        return False
    if type(sampler) is SequentialSampler:
        return True
    return (
        type(sampler) is RandomSampler
        and not sampler.replacement
        and sampler.num_samples == len(sampler.data_source)
    )


def _find_rows(dataset: Dataset[Any], collate: object) -> tuple[tuple[Tensor, ...], Pack] | None:
    if isinstance(dataset, TensorDataset):
        is_usual = type(dataset) is TensorDataset and collate is default_collate
        pack: Pack = list
    elif isinstance(dataset, InMemoryDataset):
        # Not a subclass of an implementation: it may return other samples.
        is_usual = InMemoryDataset in type(dataset).__bases__ and (
            collate is default_collate or collate is type(dataset).collate
        )
        pack = dataset.pack
    else:
        return None
    return (dataset.tensors, pack) if is_usual and _are_plain(dataset.tensors) else None


def _are_plain(tensors: tuple[Tensor, ...]) -> bool:
    """Whether gathering rows of tensors equals stacking them one by one."""
    return len({tensor.device for tensor in tensors}) == 1 and all(
        type(tensor) is Tensor
        and tensor.layout == torch.strided
        and tensor.dtype in _DTYPES
        and tensor.is_contiguous()
        and not (tensor.requires_grad or tensor.is_conj() or tensor.is_neg())
        for tensor in tensors
    )


def _is_small(tensors: tuple[Tensor, ...]) -> bool:
    return sum(tensor.nbytes for tensor in tensors) <= _SMALL_BYTES


def _have_same_shapes(some: tuple[Tensor, ...], others: tuple[Tensor, ...]) -> bool:
    """Whether tensors can be copied into others."""
    kinds = [[(tensor.shape, tensor.dtype) for tensor in tensors] for tensors in (some, others)]
    return kinds[0] == kinds[1]


def _share_memory(one: Tensor, other: Tensor) -> bool:
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def _make_rows_contiguous(tensors: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], list[bool]]:
    """The tensors with contiguous rows, and which of them had to be permuted for that."""
    are_images = [tensor.ndim == 4 and not tensor.is_contiguous() for tensor in tensors]
    flagged = zip(tensors, are_images, strict=True)
    rows = (part.permute(0, 2, 3, 1) if is_image else part for part, is_image in flagged)
    return tuple(rows), are_images


def _image_packer(pack: Pack, are_images: list[bool]) -> Pack:
    """Packs batches with the memory format that the tensors had."""

    def pack_images(columns: Iterable[Tensor]) -> Batch:
        flagged = zip(columns, are_images, strict=True)
        return pack([part.permute(0, 3, 1, 2) if is_image else part for part, is_image in flagged])

    return pack_images


def _version(tensor: Tensor) -> int:
    """A number that changes with each write; -1 for tensors without a version."""
    return -1 if tensor.is_inference() else tensor._version


def _split(tensor: Tensor, size: int) -> Iterator[Tensor]:
    """Views of a tensor's rows in parts of ``size``, made block by block."""
    if not len(tensor):
        return iter(())
    blocks = torch.split(tensor, size * _BATCHES_PER_BLOCK)
    return chain.from_iterable(torch.split(block, size) for block in blocks)


def _selector(
    columns: tuple[Tensor, ...], pack: Pack, *, is_pinned: bool
) -> Callable[[Tensor], Batch]:
    along = repeat(0)

    def select(indices: Tensor) -> Batch:
        return pack(map(torch.index_select, columns, along, repeat(indices)))

    def select_pinned(indices: Tensor) -> Batch:
        size = len(indices)
        return pack(
            [
                torch.index_select(column, 0, indices, out=_pinned(column, size))
                for column in columns
            ]
        )

    return select_pinned if is_pinned else select


def _copier(pack: Pack, *, is_pinned: bool) -> Callable[[tuple[Tensor, ...]], Batch]:
    """Copies, because a task may change its batch in place."""

    def copy(parts: tuple[Tensor, ...]) -> Batch:
        return pack(map(torch.clone, parts))

    def copy_pinned(parts: tuple[Tensor, ...]) -> Batch:
        return pack([_pinned(part, len(part)).copy_(part) for part in parts])

    return copy_pinned if is_pinned else copy


def _pinned(like: Tensor, size: int) -> Tensor:
    return torch.empty((size, *like.shape[1:]), dtype=like.dtype, pin_memory=True)
