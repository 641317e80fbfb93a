"""NVIDIA GPUs as the driver reports them: their names, their free memory and their use."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from collections.abc import Callable


@final
@dataclass(frozen=True)
class Gpu:
    """One GPU of this machine."""

    uuid: str
    name: str
    read_memory: Callable[[], tuple[int, int]]
    """Gives the free and the total bytes; RuntimeError if the driver does not report them."""

    read_use: Callable[[], float | None] = lambda: None
    """Gives the percentage of time in which it computed; None if the driver does not report it."""


def find_gpus() -> list[Gpu]:
    """The GPUs that ``CUDA_VISIBLE_DEVICES`` selects, in its order; by default all.

    Their order is that of ``nvidia-smi``. Empty without a driver or without ``pynvml``.
    """
    try:
        import pynvml
    except ImportError:
        return []
    return list_gpus(pynvml, os.environ.get("CUDA_VISIBLE_DEVICES"))


def list_gpus(nvml: Any, visible: str | None) -> list[Gpu]:  # noqa: ANN401 - a module
    """The GPUs that ``visible`` selects among those that the module ``nvml`` reports."""
    try:
        nvml.nvmlInit()
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        gpus = [
            Gpu(
                nvml.nvmlDeviceGetUUID(one),
                nvml.nvmlDeviceGetName(one),
                _memory_reader(nvml, one),
                _use_reader(nvml, one),
            )
            for one in handles
        ]
    except nvml.NVMLError:
        return []
    return [gpus[i] for i in find_visible_gpus([one.uuid for one in gpus], visible)]


def _memory_reader(nvml: Any, handle: Any) -> Callable[[], tuple[int, int]]:  # noqa: ANN401 - see above
    def read() -> tuple[int, int]:
        try:
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        except nvml.NVMLError as error:
            raise RuntimeError(str(error)) from error
        return int(memory.free), int(memory.total)

    return read


def _use_reader(nvml: Any, handle: Any) -> Callable[[], float | None]:  # noqa: ANN401 - see above
    def read() -> float | None:
        try:
            return float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        except nvml.NVMLError:
            return None

    return read


def find_visible_gpus(names: list[str], visible: str | None) -> list[int]:
    """The indices of the GPUs that ``CUDA_VISIBLE_DEVICES`` selects, in its order.

    As in CUDA, an entry is an index or the start of a name; the first unknown one ends the list.
    """
    if visible is None:
        return list(range(len(names)))
    chosen: list[int] = []
    for entry in map(str.strip, visible.split(",")):
        if entry.isdecimal():
            found = [int(entry)] if int(entry) < len(names) else []
        else:
            found = [index for index, name in enumerate(names) if entry and name.startswith(entry)]
        if len(found) != 1:
            break
        chosen += found
    return chosen
