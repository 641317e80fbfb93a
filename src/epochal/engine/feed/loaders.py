"""Reads loaders in a seeded order: map-style ones from any position, others one by one."""

from __future__ import annotations

import copy
import logging
import warnings
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, final
from weakref import WeakKeyDictionary, ref

import torch
from torch.utils.data import DataLoader, IterableDataset, MapDataPipe

from epochal.engine.feed.host_generators import HostGenerators, mix_seed
from epochal.engine.feed.sampling_order import (
    DataPass,
    derive_pass_seeds,
    draws_each_index_once,
    find_indices,
    find_sampler,
    fixed_order,
    is_standard_dataloader,
    iterate_seeded,
    split_indices,
)
from epochal.engine.feed.seeded_dataset import (
    DatasetTraits,
    ReadRequest,
    SeededDataset,
    WorkerInit,
    identity_collate,
)
from epochal.engine.feed.worker_data import find_repeated_samples, refuse_captured_run
from epochal.engine.process.worker_reads import ReadLog
from epochal.engine.process.workers import iterate_loader, protect_workers_from_signals

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from epochal.engine.feed.rank_shares import RankShare
    from epochal.engine.interfaces.task import Batch, Loader


logger = logging.getLogger(__name__)

_OPTIONS = ("num_workers", "pin_memory")
WORKER_OPTIONS = ("timeout", "prefetch_factor", "persistent_workers", "multiprocessing_context")
_COMPARED_OPTIONS = (*_OPTIONS, *WORKER_OPTIONS, "worker_init_fn", "collate_fn")


@final
class IndexedLoaders:
    """The indexed loaders of a run; they and their workers exist as long as the DataLoaders."""

    def __init__(self) -> None:
        self._indexed_loaders: WeakKeyDictionary[DataLoader[Any], IndexedLoader] = (
            WeakKeyDictionary()
        )
        self._named: set[str] = set()

    def find(self, loader: Loader) -> IndexedLoader | None:
        """The indexed loader of a DataLoader with a map-style dataset; None for others."""
        if not isinstance(loader, DataLoader) or not is_standard_dataloader(loader):
            return None
        if isinstance(loader.dataset, IterableDataset | MapDataPipe):
            return None
        indexed = self._indexed_loaders.get(loader)
        if indexed is None or not indexed.matches_loader(loader):
            indexed = self._indexed_loaders[loader] = IndexedLoader(loader, self._named)
        return indexed

    def find_log(self, loader: Loader) -> ReadLog | None:
        """What the workers of a loader read, if it has any and was opened."""
        indexed = self._indexed_loaders.get(loader) if isinstance(loader, DataLoader) else None
        return None if indexed is None else indexed.log


@final
class IndexedLoader:
    """Reads the data of a DataLoader, with the same bits for any number of workers.

    Without workers batches are read directly. ``named`` holds the datasets named in a warning.
    """

    def __init__(self, loader: DataLoader[Any], named: set[str]) -> None:
        self._facts = _read_compared_options(loader)
        self._origin = ref(loader)
        self._named = named
        self._generators = HostGenerators()
        is_stacked = loader.batch_sampler is not None
        self._reader = SeededDataset(loader.dataset, loader.collate_fn, is_stacked=is_stacked)
        self._needs_traits = self._reader.may_draw
        self._plan = _PassSampler()
        self._loader: DataLoader[Any] | None = None
        self.log: ReadLog | None = None
        """What workers read, if there are any."""

        refuse_captured_run(loader)
        if loader.num_workers:
            self.log = self._reader.log = ReadLog(loader.num_workers)
        if loader.num_workers or loader.pin_memory:
            self._loader = _build_loader(loader, self._reader, self._plan)

    def matches_loader(self, loader: DataLoader[Any]) -> bool:
        """Whether the options of the loader are unchanged."""
        facts = _read_compared_options(loader)
        return all(one is other for one, other in zip(facts, self._facts, strict=True))

    def open(self, one_pass: DataPass) -> Iterator[Batch]:
        """The batches of a pass; the caller holds the DataLoader."""
        loader = self._origin()
        assert loader is not None
        sample_seed, batch_seed, sampler_seed = derive_pass_seeds(one_pass)
        sampler, size, drop_last = find_sampler(loader)
        start = one_pass.start
        indices = find_indices(sampler, one_pass.seed)
        parts: Iterator[Any]
        if indices is None:
            parts = self._run_sampler(loader, one_pass, sampler_seed)
        else:
            parts = split_indices(indices, size, start, drop_last=drop_last)
        is_probe, self._needs_traits = self._needs_traits, False
        share = one_pass.share
        if share is not None:
            if size is None and loader.batch_sampler is None:  # each index is a whole batch
                shared = replace(one_pass, share=None)
                self._needs_traits = is_probe
                return share.of_batches(self.open(shared))
            base = sample_seed if draws_each_index_once(sampler) else None
            parts = self._request_shares(share, parts, start, (batch_seed, base), is_probe=is_probe)
        elif self._reader.may_draw:
            base = sample_seed if draws_each_index_once(sampler) else None
            first = start if is_probe else -1
            parts = (
                ReadRequest(part, mix_seed(batch_seed, number), base, number == first)
                for number, part in enumerate(parts, start)
            )
        batches = self._read(parts, one_pass.seed)
        return self._unpack_first(batches) if is_probe else batches

    def _request_shares(
        self,
        share: RankShare,
        parts: Iterator[Any],
        start: int,
        seeds: tuple[int, int | None],
        *,
        is_probe: bool,
    ) -> Iterator[Any]:
        """Requests for the samples of this process, with the seeds they have in whole batches."""
        batch_seed, base = seeds
        for number, place, part in share.of_indices(parts, start):
            if self._reader.may_draw:
                seed = mix_seed(batch_seed, number)
                yield ReadRequest(part, seed, base, is_probe, place)
            else:
                yield part
            is_probe = False

    def _read(self, parts: Iterator[Any], seed: int) -> Iterator[Batch]:
        reader, loader = self._reader, self._loader
        if loader is None:
            return map(reader.__getitems__ if reader.may_draw else reader.read_unseeded, parts)
        self._plan.items = parts
        loader.generator = torch.Generator().manual_seed(seed)
        return iterate_loader(loader)

    def _run_sampler(self, loader: DataLoader[Any], one_pass: DataPass, seed: int) -> Iterator[Any]:
        sampler: Any = find_sampler(loader)[0]
        with fixed_order(loader, one_pass.seed):
            yield from iterate_seeded(sampler, seed, one_pass.start, self._generators)

    def _unpack_first(self, batches: Iterator[Any]) -> Iterator[Batch]:
        for batch, findings in islice(batches, 1):
            self._store_traits(findings)
            yield batch
        yield from batches

    def _store_traits(self, findings: DatasetTraits) -> None:
        reader = self._reader
        reader.is_random |= findings.is_random
        name = type(reader.dataset).__name__
        if findings.is_nondeterministic and name not in self._named:
            self._named.add(name)
            logger.warning(
                "data: one sample of %s, read twice with the same seed, differed: it has its own "
                "generator, so a resumed run may not be exact; "
                "draw from random, numpy.random or torch instead",
                name,
            )


@final
class _PassSampler:
    """A batch sampler whose items are set for each pass."""

    def __init__(self) -> None:
        self.items: Iterable[Any] = ()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)


def _read_compared_options(loader: DataLoader[Any]) -> list[object]:
    return [getattr(loader, name) for name in _COMPARED_OPTIONS]


def _build_loader(
    loader: DataLoader[Any], reader: SeededDataset, plan: _PassSampler
) -> DataLoader[Any]:
    # The workers may have been removed, and their options not.
    names = (*_OPTIONS, *WORKER_OPTIONS) if loader.num_workers else _OPTIONS
    options: dict[str, Any] = {name: getattr(loader, name) for name in names}
    if reader.may_draw:
        options["collate_fn"] = identity_collate
        options["worker_init_fn"] = WorkerInit(loader.worker_init_fn)
    else:
        options["collate_fn"] = loader.collate_fn
        options["worker_init_fn"] = loader.worker_init_fn
    if not reader.may_draw and loader.batch_sampler is None:
        options |= {"batch_size": None, "sampler": plan}
    else:
        options["batch_sampler"] = plan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the DataLoader itself warned already
        indexed = DataLoader(reader if reader.may_draw else loader.dataset, **options)
    protect_workers_from_signals(indexed)
    return indexed


@final
class IterableLoaders:
    """Reads each batch with its own seed, and restores the global generators."""

    def __init__(self) -> None:
        self._generators = HostGenerators()
        self._has_warned = False
        self._has_warned_of_workers = False

    def open(
        self, loader: Loader, one_pass: DataPass, state: dict[str, Any] | None = None
    ) -> Iterator[Batch]:
        """The batches of a pass; those before its start are read and discarded.

        Nothing is read before the position of ``state``, which ``StatefulBatches`` returned there.
        """
        start = one_pass.start
        if isinstance(loader, list | tuple) and type(loader) in (list, tuple):
            return islice(loader, start, None)
        self._check_workers(loader)
        protect_workers_from_signals(loader)
        owner = find_stateful_owner(loader)
        if owner is None:
            self._warn_of_skipped(loader, start)
            return self._read(loader, one_pass, 0)
        if state is None:
            self._warn_of_skipped(loader, start)
            return StatefulBatches(owner, self._read(loader, one_pass, 0))
        owner.load_state_dict(state["owner"])
        # After its last batch a loader may be at its start again.
        first = state.get("position", start)
        source = iter(()) if state["is_over"] else self._read(loader, one_pass, first)
        return StatefulBatches(owner, source)

    def _check_workers(self, loader: Loader) -> None:
        refuse_captured_run(loader)
        if not self._has_warned_of_workers and (repeated := find_repeated_samples(loader)):
            self._has_warned_of_workers = True
            logger.warning("data: %s", repeated)

    def _warn_of_skipped(self, loader: Loader, start: int) -> None:
        if start and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "data: %s cannot start at a position, so the %d batches before it are read "
                "again; methods state_dict and load_state_dict would avoid that",
                _name(loader),
                start,
            )

    def _read(self, loader: Loader, one_pass: DataPass, first: int) -> Iterator[Batch]:
        _, seed, _ = derive_pass_seeds(one_pass)
        start = one_pass.start
        with fixed_order(loader, one_pass.seed):
            if _may_draw_in_process(loader):
                yield from iterate_seeded(loader, seed, start, self._generators, first=first)
            else:
                yield from islice(iterate_loader(loader), start - first, None)


@final
class StatefulBatches:
    """The batches of a stateful loader, with its state between any two of them."""

    def __init__(self, owner: Any, source: Iterator[Batch]) -> None:  # noqa: ANN401 - of any kind
        self._owner = owner
        self._source = source
        self._next: list[Batch] = []
        self._state: dict[str, Any] | None = None

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        self._state = None
        return self._next.pop() if self._next else next(self._source)

    def state(self, *, is_over: bool = False) -> dict[str, Any]:
        """The state of the pass.

        Reads the next batch to know whether there is one, unless ``is_over`` says it is not needed.
        """
        if self._state is None:
            owner = copy.deepcopy(self._owner.state_dict())
            if not is_over and not self._next:
                self._next = list(islice(self._source, 1))
            self._state = {"owner": owner, "is_over": not self._next}
        return dict(self._state)


def find_stateful_owner(loader: Loader) -> Any:  # noqa: ANN401 - anything with the two methods, or None
    """The loader, or its dataset without workers, if it has ``state_dict``; else None."""
    owners: list[Any] = [loader]
    if isinstance(loader, DataLoader) and not loader.num_workers:
        owners.append(loader.dataset)
    for owner in owners:
        if all(hasattr(owner, name) for name in ("state_dict", "load_state_dict")):
            return owner
    return None


def _may_draw_in_process(loader: Loader) -> bool:
    """Whether reading a batch may draw random numbers in this process."""
    if isinstance(loader, DataLoader) and loader.num_workers and is_standard_dataloader(loader):
        return False
    source = loader.dataset if isinstance(loader, DataLoader) else loader
    return bool(getattr(source, "draws_random", True))


def _name(loader: Loader) -> str:
    return type(loader.dataset if isinstance(loader, DataLoader) else loader).__name__
