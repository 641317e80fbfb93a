"""Memory that is kept for later: by the C library on the host, by torch on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from epochal.engine.run import Run


_LARGE = 31 * 2**20  # bytes; above 32 MiB glibc learns nothing from a block


def keep_freed_memory() -> None:
    """Let the C library keep on the host what one step frees, for the next one to use.

    glibc returns the end of its heap to the system when that is more than twice as large as the
    largest block that was freed so far. With tensors of one or two megabytes it does so at each
    step, which then fetches the same memory again page by page. A larger block, of which no page
    is ever touched, makes it wait longer.
    """
    torch.empty(_LARGE, dtype=torch.uint8, device="cpu")


def add_cache_emptying(run: Run) -> None:
    """Plan what ``engine.empty_cache_every`` asks for; nothing where nothing is kept."""
    empty = find_empty_cache(run.device)
    if empty is not None:
        every = run.options.engine.empty_cache_every
        run.plan.add_period("empty the cache", every, lambda run: empty())


def find_empty_cache(device: torch.device) -> Callable[[], object] | None:
    """What gives back a device's unused memory; None on the CPU, which keeps none."""
    module = getattr(torch, device.type, None)
    empty: Callable[[], object] | None = getattr(module, "empty_cache", None)
    return empty
