"""Describes the machine and software of a run: hardware, driver, environment, packages, git."""

from __future__ import annotations

import os
import platform
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from epochal.records.layout.process import host_name, read_text
from epochal.records.machine.repository import describe_repository
from epochal.records.secrets import is_secret_name, redact

if TYPE_CHECKING:
    from importlib.metadata import Distribution

_VARIABLES = frozenset((
    "CONDA_DEFAULT_ENV", "CUBLAS_WORKSPACE_CONFIG", "GROUP_RANK", "HIP_VISIBLE_DEVICES", "LANG",
    "LC_ALL", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MALLOC_ARENA_MAX", "MASTER_ADDR", "MASTER_PORT",
    "NODE_RANK", "NVIDIA_TF32_OVERRIDE", "PYTHONHASHSEED", "PYTHONPATH", "RANK",
    "ROCR_VISIBLE_DEVICES", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_CPUS_PER_TASK",
    "SLURM_GPUS", "SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_JOB_NODELIST", "SLURM_JOB_PARTITION",
    "SLURM_LOCALID", "SLURM_NNODES", "SLURM_NODEID", "SLURM_NTASKS", "SLURM_PROCID",
    "SLURM_RESTART_COUNT", "TZ", "VIRTUAL_ENV", "WORLD_SIZE",
))  # fmt: skip
_VARIABLE_PREFIXES = (
    "CUDA_", "CUDNN_", "EPOCHAL_", "GLOO_", "KMP_", "MKL_", "NCCL_", "OMP_", "OPENBLAS_",
    "PYTORCH_", "TORCH_", "TORCHDYNAMO_", "TORCHELASTIC_", "TORCHINDUCTOR_", "TRITON_",
)  # fmt: skip
_NVIDIA = Path("/proc/driver/nvidia")


def describe_machine(directory: Path | None = None) -> dict[str, object]:
    """Facts about this machine and its software, found without importing torch.

    Args:
        directory: The folder whose git repository is described; by default the current one.
    """
    return {
        "hostname": host_name(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "cpu": _cpu_name(),
        "cores": os.cpu_count() or 0,
        "usable_cores": _usable_cores(),
        "memory_bytes": _memory_bytes(),
        "gpus": _gpu_names(),
        "driver": _driver(),
        "environment": read_environment(),
        "packages": package_versions(),
        "git": describe_repository(directory or Path.cwd()),
    }


def _cpu_name() -> str:
    lines = read_text(Path("/proc/cpuinfo")).splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # Linux only
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 0


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def package_versions() -> dict[str, str]:
    """The version of every installed package, by its name in lower case."""
    from importlib.metadata import distributions

    versions: dict[str, str] = {}
    for distribution in distributions():
        with suppress(OSError, ValueError):  # a broken installation
            name, version = _name_and_version(distribution)
            if name and version:  # the first one on the path is imported
                versions.setdefault(name.lower(), version)
    return dict(sorted(versions.items()))


def _name_and_version(distribution: Distribution) -> tuple[str, str]:
    """Two fields of the metadata; parsing all of it takes far longer."""
    text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
    fields: dict[str, str] = {}
    for line in text.partition("\n\n")[0].splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key, value.strip())
    return fields.get("Name", ""), fields.get("Version", "")


def read_environment() -> dict[str, str]:
    """The environment variables that may change what a run computes."""
    return {
        name: redact(value)
        for name, value in sorted(os.environ.items())
        if (name in _VARIABLES or name.startswith(_VARIABLE_PREFIXES)) and not is_secret_name(name)
    }


def _gpu_names() -> list[str]:
    """The names of the NVIDIA GPUs, from the driver."""
    names = []
    for path in sorted(_NVIDIA.glob("gpus/*/information")):
        lines = read_text(path).splitlines()
        found = (line.partition(":")[2].strip() for line in lines if line.startswith("Model"))
        names.append(next(found, "unknown"))
    return names


def _driver() -> str:
    return next(iter(read_text(_NVIDIA / "version").splitlines()), "").strip()
