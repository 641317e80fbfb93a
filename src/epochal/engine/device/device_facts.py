"""Type, name and memory of a device."""

from __future__ import annotations

import platform
from typing import Any

import torch


def read_device_facts(device: torch.device) -> dict[str, Any]:
    """``type`` and ``name``; for CUDA also ``memory_bytes`` and ``capability``."""
    if device.type != "cuda":
        name = platform.processor() or platform.machine() if device.type == "cpu" else device.type
        return {"type": device.type, "name": name}
    properties = torch.cuda.get_device_properties(device)
    return {
        "type": "cuda",
        "name": properties.name,
        "memory_bytes": properties.total_memory,
        "capability": (properties.major, properties.minor),
    }
