"""Deletes run folders or their checkpoints atomically."""

from __future__ import annotations

import errno
import os
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from epochal import durable
from epochal.errors import RecordError
from epochal.records.alive.lease import holding_lease
from epochal.records.folder.record import read_folder
from epochal.records.layout.epochal_dir import EPOCHAL_DIR
from epochal.records.layout.os_errors import describe_os_error
from epochal.records.layout.process import host_name, is_process_gone
from epochal.records.prune.prune_policy import ACTIVE_STATUSES, CHECKPOINTS_DIR

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


def remove_run(folder: Path) -> None:
    """Delete the folder of a run; it is renamed first, so that no partial run is visible.

    Raises:
        RecordError: It is running, or cannot be deleted.
    """
    _remove(folder, folder)


def remove_checkpoints(folder: Path) -> None:
    """Delete the checkpoints of a run, but not its record.

    Raises:
        RecordError: It is running, or they cannot be deleted.
    """
    _remove(folder, folder / CHECKPOINTS_DIR)


def finish_interrupted_removals(folders: Iterable[Path]) -> None:
    """Delete what interrupted removals renamed in these folders."""
    for folder in folders:
        with suppress(OSError):  # another process may be doing the same
            durable.remove_stale(folder, _is_stale)


def get_code_store_dir(root: Path) -> Path:
    """The folder with the code that runs share."""
    from epochal.records.code.content_store import CODE_STORE_DIR  # not needed to list runs

    return root / EPOCHAL_DIR / CODE_STORE_DIR


def remove_unused_code(root: Path) -> int:
    """Delete code that no run uses; gives the freed bytes."""
    from epochal.records.code.content_store import ContentStore

    return ContentStore(get_code_store_dir(root)).remove_unused()


def _remove(folder: Path, target: Path) -> None:
    try:
        with _holding_lease_if_possible(folder):
            # It may have been resumed since it was listed.
            if read_folder(folder).summary.status in ACTIVE_STATUSES:
                raise RecordError(f"{folder}: is running\n  wait for its end, or stop it first")
            if target.is_dir():
                durable.remove_tree(target, f"prune.{os.getpid()}")
    except OSError as error:
        reason = describe_os_error(error)
        raise RecordError(
            f"{target}: cannot be deleted: {reason}\n  check its permissions"
        ) from error


@contextmanager
def _holding_lease_if_possible(folder: Path) -> Iterator[None]:
    """Hold the lease of a run; on a full disk, where it cannot be written, only check it."""
    with ExitStack() as stack:
        try:
            stack.enter_context(holding_lease(folder))
        except RecordError as error:
            if getattr(error.__cause__, "errno", None) not in (errno.ENOSPC, errno.EDQUOT):
                raise
        yield


def _is_stale(owner: str) -> bool:
    word, _, number = owner.partition(".")
    return word == "prune" and number.isdecimal() and is_process_gone(int(number), host=host_name())
