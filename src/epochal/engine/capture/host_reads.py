"""Notes or refuses operations that make the host wait for the device."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def noting_host_reads(device: torch.device) -> Iterator[list[str]]:
    """Note when the host waits for the device in a block; a list that is empty if it never does.

    Warnings of the block are not shown: it repeats steps that showed them.
    """
    found: list[str] = []
    if device.type != "cuda":
        yield found
        return
    with _sync_debug_mode("warn") as caught:
        yield found
    found += [str(one.message) for one in caught if is_host_read(one.message)]


@contextmanager
def refusing_host_reads(device: torch.device) -> Iterator[None]:
    """Raise an error before the host would wait for the device in a block."""
    if device.type != "cuda":
        yield
        return
    with _sync_debug_mode("error"):
        yield


def is_host_read(message: BaseException | str) -> bool:
    """Whether torch says with this error or warning that the host waits for the device."""
    return "synchronizing CUDA operation" in str(message)


@contextmanager
def _sync_debug_mode(mode: str) -> Iterator[list[warnings.WarningMessage]]:
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode(mode)  # warns that it does not find all reads
        try:
            yield caught
        finally:
            torch.cuda.set_sync_debug_mode(before)
