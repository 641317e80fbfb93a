"""Reads loaders that can only be iterated over."""

from __future__ import annotations

import copy
import logging
from itertools import islice
from typing import TYPE_CHECKING, Any, final

from torch.utils.data import DataLoader

from epochal.engine.feed.host_generators import HostGenerators
from epochal.engine.feed.sampling_order import (
    DataPass,
    derive_pass_seeds,
    fixed_order,
    is_standard_dataloader,
    iterate_seeded,
)
from epochal.engine.feed.worker_data import find_repeated_samples, refuse_captured_run
from epochal.engine.process.signals import protect_workers_from_signals

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.engine.interfaces.task import Batch, Loader

_logger = logging.getLogger(__name__)


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
        """The batches of a pass.

        Args:
            loader: Read from its start if there is no state.
            one_pass: Batches before its start are read and discarded.
            state: What ``StatefulBatches`` returned at that position, or at an earlier one that it
                names; then nothing before it is read.
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
            _logger.warning("data: %s", repeated)

    def _warn_of_skipped(self, loader: Loader, start: int) -> None:
        if start and not self._has_warned:
            self._has_warned = True
            _logger.warning(
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
                yield from islice(loader, start - first, None)


@final
class StatefulBatches:
    """The batches of a stateful loader, with its state between any two of them.

    Args:
        owner: Has ``state_dict`` and ``load_state_dict``.
        source: Its batches.
    """

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
        """The state of the pass; reads the next batch to know whether there is one.

        Args:
            is_over: The next batch is not needed, so it is not read.
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
