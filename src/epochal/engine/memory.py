"""Memory of the device that torch keeps for later, given back every so often."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from epochal.engine.run import Run


def add_emptying(run: Run) -> None:
    """Plan what ``engine.empty_cache_every`` asks for; nothing where nothing is kept."""
    empty = find_emptier(run.device)
    if empty is not None:
        every = run.options.engine.empty_cache_every
        run.plan.add_period("empty the cache", every, lambda run: empty())


def find_emptier(device: torch.device) -> Callable[[], object] | None:
    """What gives back a device's unused memory; None on the CPU, which keeps none."""
    module = getattr(torch, device.type, None)
    empty: Callable[[], object] | None = getattr(module, "empty_cache", None)
    return empty
