"""Checks of the machine: versions, cores, memory, limits, devices."""

from __future__ import annotations

import os
import platform
import resource
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from epochal.doctor.diagnostic import Diagnostic
from epochal.records.layout.process import read_text
from epochal.text.formatting import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

SHARED = Path("/dev/shm")
_CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")
_LITTLE_SHARED_BYTES = 1_000_000_000
_FEW_FILES = 4096


def check_host() -> Iterator[Diagnostic]:
    """All checks that need no torch."""
    yield _check_versions()
    yield _check_cores()
    yield _check_memory()
    yield check_shared_memory()
    yield check_open_files()


def check_devices() -> Iterator[Diagnostic]:
    """Check the devices of torch; imports it."""
    try:
        import torch
    except Exception as error:
        yield Diagnostic("torch", "fail", f"cannot be imported: {error}", "pip install torch")
        return
    cuda = torch.version.cuda
    yield Diagnostic(
        "torch", "ok", f"{torch.__version__}, " + (f"CUDA {cuda}" if cuda else "no CUDA")
    )
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            facts = torch.cuda.get_device_properties(index)
            yield Diagnostic(
                f"cuda:{index}", "ok", f"{facts.name}, {format_bytes(facts.total_memory)}"
            )
    elif shutil.which("nvidia-smi"):
        what = "there is a driver, but torch cannot use it"
        hint = "compare the CUDA version above with what `nvidia-smi` shows"
        yield Diagnostic("devices", "warn", what, hint)
    else:
        yield Diagnostic("devices", "ok", "the CPU only")


def _check_versions() -> Diagnostic:
    names = ("epochal", "torch", "numpy", "safetensors")
    found = ", ".join(f"{name} {_version(name)}" for name in names)
    missing = [name for name in names[1:] if not _version(name)]
    what = f"python {platform.python_version()}, {found}"
    if missing:
        return Diagnostic("versions", "fail", what, f"pip install {' '.join(missing)}")
    return Diagnostic("versions", "ok", what)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _check_cores() -> Diagnostic:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    what = f"{usable} of {os.cpu_count()} can be used"
    quota, _, period = read_text(_CPU_QUOTA).partition(" ")
    if quota.isdigit() and period.strip().isdigit():
        what += f", a container may use {int(quota) / int(period):.1f}"
    return Diagnostic("cores", "ok", what)


def _check_memory() -> Diagnostic:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = read_text(_MEMORY_LIMIT).strip()
    what = format_bytes(total)
    if limit.isdigit() and int(limit) < total:
        what = f"{format_bytes(int(limit))} for this container, of {what}"
    return Diagnostic("memory", "ok", what)


def check_shared_memory(path: Path = SHARED) -> Diagnostic:
    """Check the shared memory through which loader workers pass batches."""
    try:
        total = shutil.disk_usage(path).total
    except OSError:
        return Diagnostic("shared memory", "ok", "has no separate folder here")
    if total < _LITTLE_SHARED_BYTES:
        hint = "give the container more, for example --shm-size=8g, or use few loader workers"
        return Diagnostic("shared memory", "warn", f"only {format_bytes(total)} in {path}", hint)
    return Diagnostic("shared memory", "ok", f"{format_bytes(total)} in {path}")


def check_open_files() -> Diagnostic:
    """Check how many files a process may open, including the pipes of workers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _FEW_FILES:
        most = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
        hint = f"raise it before you train: ulimit -n {most}"
        return Diagnostic("open files", "warn", f"at most {soft} at a time", hint)
    shown = "no limit" if soft == resource.RLIM_INFINITY else f"at most {soft} at a time"
    return Diagnostic("open files", "ok", shown)
