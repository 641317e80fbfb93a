"""The CUDA stream on which graphs are captured."""

from __future__ import annotations

from functools import cache

import torch


@cache
def capture_stream(device: torch.device) -> torch.cuda.Stream:
    """One stream for all graphs of a device: libraries keep memory for each stream they saw."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch has no types here
