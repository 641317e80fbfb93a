"""Chooses the device of a run, and describes it for the record."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING, Any

import torch

from epochal.config.node_range import parse_nodes
from epochal.distributed.environment import read_rank_environment
from epochal.errors import ConfigError, Problem

if TYPE_CHECKING:
    from epochal.experiment.config.choices import Choices

_MAX_CPU_PROCESSES = 64
"""Processes on the CPU that are accepted on any machine, also to test a large run."""


def choose_device(choices: Choices) -> torch.device:
    """The chosen device, or an accelerator of this process, or the CPU."""
    names, gpus = list_devices(choices.get("device")), choices.get("gpus")
    if gpus is not None and names:
        what = f"given together with --device {choices.get('device')!r}"
        raise _device_error("--gpus", what, "keep one of them")
    place = read_rank_environment()
    number = 0 if place is None else place.local_rank
    if gpus is not None:
        return _from_count(gpus, number)
    if not names:
        return _find_accelerator(number) or torch.device("cpu")
    if len(names) > 1:
        if number >= len(names):
            what = f"names {len(names)} devices, and this process is number {number + 1} here"
            raise _device_error("--device", what, "name one device for each process")
        return _from_name(names[number])
    device = _from_name(names[0])
    if ":" not in str(device) and device.type != "cpu" and place is not None:
        return _from_name(f"{device.type}:{number}")
    return device


def list_devices(chosen: str | int | list[int] | list[str] | None) -> list[str]:
    """The names of the chosen devices: none, one, or several as ``0,1,2`` or a list."""
    if chosen is None:
        return []
    names = chosen if isinstance(chosen, list | tuple) else str(chosen).split(",")
    return [str(name).strip() for name in names if str(name).strip()]


def count_ranks(choices: Choices) -> int:
    """How many processes a run has on this machine, from the choices.

    Raises:
        ConfigError: The choices contradict each other.
    """
    nproc, names = choices.get("nproc"), list_devices(choices.get("device"))
    if nproc is not None and nproc < 1:
        raise _device_error("--nproc", f"must be at least 1, got {nproc}", "use for example 2")
    gpus = choices.get("gpus") or 1
    devices = max(len(names), gpus)
    if nproc is not None and devices not in (1, nproc):
        what = f"given as {nproc}, with {devices} devices"
        raise _device_error("--nproc", what, "leave it out: each device has its own process")
    return nproc or devices


def count_nodes(choices: Choices) -> tuple[int, int]:
    """The smallest and the largest number of machines of a run, from the choices.

    Raises:
        ConfigError: The choices contradict each other.
    """
    nodes, endpoint = choices.get("nnodes"), choices.get("rdzv_endpoint")
    try:
        least, largest = parse_nodes(1 if nodes is None else nodes)
    except ValueError as error:
        raise _device_error("--nnodes", str(error), "use for example 2, or 1:3") from None
    if largest > 1 and endpoint is None:
        what = "missing; several machines need an address to connect to"
        raise _device_error("--rdzv-endpoint", what, "name a free port on one of them: node1:29400")
    if largest == 1 and endpoint is not None:
        what = f"{endpoint!r} is for several machines, and there is one"
        raise _device_error("--rdzv-endpoint", what, "add --nnodes 2, or leave it out")
    return least, largest


def refuse_debugging_all(choices: Choices, count: int) -> None:
    """Refuse a debugger for all of several processes, or for one that does not exist."""
    rank = choices.get("debug_rank")
    if rank is None and choices.get("debug") and count > 1:
        what = f"debugs one process, and there are {count}"
        raise _device_error("--debug", what, "debug one of them: --debug-rank 1")
    if rank is not None and count == 1:
        what = "names one of several processes, and there is only one"
        raise _device_error("--debug-rank", what, "use --debug, or add --nproc 2")
    if rank is not None and not 0 <= rank < count:
        what = f"there is no rank {rank} of {count} processes"
        raise _device_error("--debug-rank", what, f"name one from 0 to {count - 1}")


def refuse_too_many_processes(choices: Choices) -> None:
    """Refuse more processes than this machine has devices for, before any of them starts.

    Raises:
        ConfigError: A device is missing, the CPU would have far more processes than cores, or the
            number of restarts is negative.
    """
    restarts = choices.get("restarts", 0)
    if restarts < 0:
        raise _device_error("--restarts", f"must be at least 0, got {restarts}", "use 0 for none")
    count, names = count_ranks(choices), list_devices(choices.get("device"))
    for name in names:
        _from_name(name)
    device = choose_device(choices)
    key = "--nproc" if choices.get("nproc") is not None else "--gpus"
    if device.type == "cpu":
        cores = os.cpu_count() or 1
        if count > max(_MAX_CPU_PROCESSES, 4 * cores):
            what = f"{count} processes on the CPU, and this machine has {cores} cores"
            raise _device_error(key, what, f"use at most one for each core: --nproc {cores}")
    elif not any(":" in name or name.isdecimal() for name in names):
        available = _available(device.type)
        if count > available:
            what = f"{count} processes, and this machine has {available} of type {device.type!r}"
            raise _device_error(
                key, what, f"use {key} {available}, or --nproc {count} --device cpu"
            )


def describe_ranks(choices: Choices) -> str:
    """The processes of a run, for users; empty if there is only one."""
    count, names = count_ranks(choices), list_devices(choices.get("device"))
    least, largest = count_nodes(choices)
    if count == largest == 1:
        return ""
    refuse_too_many_processes(choices)
    device = choose_device(choices)
    where = str(device) if device.type == "cpu" else device.type
    if len(names) > 1:
        where = ", ".join(str(_from_name(name)) for name in names)
    how = "gloo" if device.type == "cpu" else "NCCL"
    ranks = "1 process" if count == 1 else f"{count} processes"
    if largest > 1:
        number = str(least) if least == largest else f"{least} to {largest}"
        met = choices.get("rdzv_endpoint")
        ranks = f"{ranks} on each of {number} machines, which connect to {met};"
    return f"{ranks} on {where}, connected by {how}, that share each batch"


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


def _from_count(gpus: int, number: int) -> torch.device:
    if gpus == 0:
        return torch.device("cpu")
    if gpus < 0:
        raise _device_error("--gpus", f"not a number of accelerators: {gpus}", "use 0 or 1")
    accelerator = _find_accelerator(number)
    if accelerator is None:
        what = f"this machine has no accelerator, got {gpus}"
        raise _device_error("--gpus", what, "use --gpus 0")
    return _from_name(str(accelerator))


def _from_name(name: str) -> torch.device:
    if name.isdecimal():  # 0 is the first accelerator of any type
        accelerator = _find_accelerator(0)
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
        what = f"{name!r} does not exist: this machine has {available} of type {device.type!r}"
        raise _device_error("--device", what, "use --device cpu, or leave it out")
    return device


def _available(kind: str) -> int:
    if kind == "cpu":
        return 1
    if kind == "cuda":
        return torch.cuda.device_count()
    accelerator = _find_accelerator(0)
    return 1 if accelerator is not None and accelerator.type == kind else 0


def _find_accelerator(number: int) -> torch.device | None:
    found = torch.accelerator.current_accelerator(check_available=True)
    return None if found is None else torch.device(found.type, number)


def _driver_version() -> str | None:
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8") as file:  # noqa: PTH123 - a kernel file
            return file.readline().strip()
    except OSError:
        return None


def _device_error(key: str, what: str, hint: str) -> ConfigError:
    return ConfigError(Problem(key, what, hint=hint))
