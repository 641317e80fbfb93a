"""Explains errors of loader workers that died."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch.utils.data import DataLoader

from epochal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.engine.interfaces.task import Loader

_DEAD_WORKER = re.compile(r"DataLoader worker \(pid")


@contextmanager
def explaining_worker_deaths(loader: Loader, label: str) -> Iterator[None]:
    """Raise a DataError when a worker of the loader dies in a block."""
    try:
        yield
    except (RuntimeError, ConnectionError, EOFError) as error:
        if not _is_worker_death(error, loader):
            raise
        raise DataError(
            f"{label}: a worker process of the loader died\n"
            "  often it ran out of memory; try workers=0 to see an error of the dataset itself"
        ) from error


def _is_worker_death(error: Exception, loader: Loader) -> bool:
    """Whether an error means that a worker died."""
    if isinstance(error, RuntimeError):
        return bool(_DEAD_WORKER.search(str(error)))
    # A worker that dies while it sends a batch breaks the connection. What a dataset raises in a
    # worker comes with a traceback.
    is_own = "in DataLoader worker process" in str(error)
    return isinstance(loader, DataLoader) and loader.num_workers > 0 and not is_own
