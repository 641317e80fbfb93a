"""Processes of loaders that die, told in words."""

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
    """Say it in words when one of the loader's processes dies in a block."""
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
    """Whether an error of a loader says that one of its processes is gone."""
    if isinstance(error, RuntimeError):
        return bool(_DEAD_WORKER.search(str(error)))
    # A batch was on its way: then the line to the process breaks. What a dataset raises in a
    # process comes with its own traceback.
    is_own = "in DataLoader worker process" in str(error)
    return isinstance(loader, DataLoader) and loader.num_workers > 0 and not is_own
