"""Memory that the C library and torch keep for reuse."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

_LARGE = 31 * 2**20  # bytes; above 32 MiB glibc learns nothing from a block


def keep_freed_memory() -> None:
    """Let the C library keep host memory that one step frees for the next one.

    glibc returns the end of its heap to the system when it is more than twice as large as the
    largest block freed so far. With tensors of a few megabytes it does so in each step, which then
    gets the same memory back page by page. Freeing one large untouched block raises that limit.
    """
    torch.empty(_LARGE, dtype=torch.uint8, device="cpu")


def find_empty_cache(device: torch.device) -> Callable[[], object] | None:
    """The function that frees a device's unused memory; None on the CPU."""
    module = getattr(torch, device.type, None)
    empty: Callable[[], object] | None = getattr(module, "empty_cache", None)
    return empty
