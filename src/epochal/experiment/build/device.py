"""Chooses the device of a run, and describes it for the record."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING, Any

import torch

from epochal.errors import ConfigError, Problem

if TYPE_CHECKING:
    from epochal.experiment.config.choices import Choices


def choose_device(choices: Choices) -> torch.device:
    """The chosen device, or the first accelerator, or the CPU."""
    name, gpus = choices.get("device"), choices.get("gpus")
    if gpus is not None and name is not None:
        raise _device_error("--gpus", f"given together with --device {name!r}", "keep one of them")
    if gpus is not None:
        return _from_count(gpus)
    if name is None:
        return _first_accelerator() or torch.device("cpu")
    return _from_name(name)


def describe_device(device: torch.device) -> dict[str, Any]:
    """Kind, name, memory and driver of ``device``, for the banner and the record."""
    if device.type != "cuda":
        return {"device": str(device), "name": platform.processor() or platform.machine()}
    properties = torch.cuda.get_device_properties(device)
    return {
        "device": str(device),
        "name": properties.name,
        "memory_bytes": properties.total_memory,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]  # torch has none
        "driver": _driver_version(),
    }


def prepare_debugging() -> None:
    """Make CUDA kernels report errors where they happen; call before the first CUDA call."""
    os.environ["CUDA_LAUNCH_BLOCKING"] = "1"


def _from_count(gpus: int) -> torch.device:
    if gpus == 0:
        return torch.device("cpu")
    if gpus < 0:
        raise _device_error("--gpus", f"not a number of accelerators: {gpus}", "use 0 or 1")
    if gpus > 1:
        raise _device_error(
            "--gpus", f"one run trains on one device for now, got {gpus}", "use --gpus 1"
        )
    accelerator = _first_accelerator()
    if accelerator is None:
        raise _device_error("--gpus", "this machine has no accelerator, got 1", "use --gpus 0")
    return accelerator


def _from_name(name: str | int | list[int] | list[str]) -> torch.device:
    if isinstance(name, list | tuple):
        if len(name) != 1:
            what = f"one run trains on one device for now, got {name!r}"
            raise _device_error("--device", what, "use for example --device cuda:0")
        name = name[0]
    if str(name).isdecimal():  # 0 is the first accelerator of any type
        accelerator = _first_accelerator()
        if accelerator is None:
            what = f"this machine has no accelerator, got {name!r}"
            raise _device_error("--device", what, "use --device cpu, or leave it out")
        name = f"{accelerator.type}:{name}"
    try:
        device = torch.device(name)
    except RuntimeError:
        hint = "use cpu, cuda, cuda:1, mps or xpu"
        raise _device_error("--device", f"unknown device {name!r}", hint) from None
    available = _available(device.type)
    if (device.index or 0) >= available:
        what = f"{name!r} is not here: this machine has {available} of type {device.type!r}"
        raise _device_error("--device", what, "use --device cpu, or leave it out")
    return device


def _available(kind: str) -> int:
    if kind == "cpu":
        return 1
    if kind == "cuda":
        return torch.cuda.device_count()
    accelerator = _first_accelerator()
    return 1 if accelerator is not None and accelerator.type == kind else 0


def _first_accelerator() -> torch.device | None:
    found = torch.accelerator.current_accelerator(check_available=True)
    return None if found is None else torch.device(found.type, 0)


def _driver_version() -> str | None:
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8") as file:  # noqa: PTH123 - a kernel file
            return file.readline().strip()
    except OSError:
        return None


def _device_error(key: str, what: str, hint: str) -> ConfigError:
    return ConfigError(Problem(key, what, hint=hint))
