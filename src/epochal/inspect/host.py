"""Whether a machine is fit to train: versions, cores, memory, limits, devices."""

from __future__ import annotations

import os
import platform
import resource
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from epochal.inspect.findings import Finding
from epochal.records.figures import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

SHARED = Path("/dev/shm")
_CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")
_LITTLE_SHARED_BYTES = 1_000_000_000
_FEW_FILES = 4096


def look_at_host() -> Iterator[Finding]:
    """Look at everything that needs no torch."""
    yield _look_at_versions()
    yield _look_at_cores()
    yield _look_at_memory()
    yield look_at_shared_memory()
    yield look_at_open_files()


def look_at_devices() -> Iterator[Finding]:
    """Look at what torch can compute on; imports it."""
    try:
        import torch
    except Exception as error:
        yield Finding("torch", "fail", f"cannot be imported: {error}", "pip install torch")
        return
    cuda = torch.version.cuda
    yield Finding("torch", "ok", f"{torch.__version__}, " + (f"CUDA {cuda}" if cuda else "no CUDA"))
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            facts = torch.cuda.get_device_properties(index)
            yield Finding(
                f"cuda:{index}", "ok", f"{facts.name}, {format_bytes(facts.total_memory)}"
            )
    elif shutil.which("nvidia-smi"):
        what = "there is a driver, but torch cannot use it"
        hint = "compare the CUDA version above with what `nvidia-smi` shows"
        yield Finding("devices", "warn", what, hint)
    else:
        yield Finding("devices", "ok", "the CPU only")


def _look_at_versions() -> Finding:
    names = ("epochal", "torch", "numpy", "safetensors")
    found = ", ".join(f"{name} {_version(name)}" for name in names)
    missing = [name for name in names[1:] if not _version(name)]
    what = f"python {platform.python_version()}, {found}"
    if missing:
        return Finding("versions", "fail", what, f"pip install {' '.join(missing)}")
    return Finding("versions", "ok", what)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _look_at_cores() -> Finding:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    what = f"{usable} of {os.cpu_count()} can be used"
    quota, _, period = _read(_CPU_QUOTA).partition(" ")
    if quota.isdigit() and period.strip().isdigit():
        what += f", a container may use {int(quota) / int(period):.1f}"
    return Finding("cores", "ok", what)


def _look_at_memory() -> Finding:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _read(_MEMORY_LIMIT).strip()
    what = format_bytes(total)
    if limit.isdigit() and int(limit) < total:
        what = f"{format_bytes(int(limit))} for this container, of {what}"
    return Finding("memory", "ok", what)


def look_at_shared_memory(path: Path = SHARED) -> Finding:
    """Look at what workers of loaders pass batches through."""
    try:
        total = shutil.disk_usage(path).total
    except OSError:
        return Finding("shared memory", "ok", "has no folder of its own here")
    if total < _LITTLE_SHARED_BYTES:
        hint = "give the container more, for example --shm-size=8g, or use few loader workers"
        return Finding("shared memory", "warn", f"only {format_bytes(total)} in {path}", hint)
    return Finding("shared memory", "ok", f"{format_bytes(total)} in {path}")


def look_at_open_files() -> Finding:
    """Look at how many files a process may have open, workers' pipes included."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _FEW_FILES:
        most = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
        hint = f"raise it before you train: ulimit -n {most}"
        return Finding("open files", "warn", f"at most {soft} at a time", hint)
    shown = "no limit" if soft == resource.RLIM_INFINITY else f"at most {soft} at a time"
    return Finding("open files", "ok", shown)


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
