"""Describes the machine: hardware, packages, environment, file systems, and the git repository."""

from __future__ import annotations

import os
import platform
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epochal.records.layout.process import host_name, read_text
from epochal.records.secrets import is_secret_file, is_secret_name, redact

if TYPE_CHECKING:
    from collections.abc import Iterator
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
    """Facts about this machine, its software, and the git repository of a folder; without torch."""
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
        "driver": read_text(_NVIDIA / "version").partition("\n")[0].strip(),
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


def own_version() -> str:
    """The version of Epochal."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("epochal")
    except PackageNotFoundError:  # run from a source tree that was not installed
        return "not installed"


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


MOUNTS = Path("/proc/self/mounts")
_SHARED = re.compile(
    r"nfs\d?|cifs|smb\d?|lustre|gpfs|beegfs|ceph|glusterfs|afs|9p|virtiofs|fuse(\..+)?|orangefs"
)


def find_file_system(folder: Path) -> tuple[str, str]:
    """The type and mount point of a folder's file system; empty when unknown."""
    try:
        mounts = MOUNTS.read_text("utf-8", "surrogateescape")
    except OSError:  # not Linux
        return "", ""
    place = folder.resolve()
    best = ("", "")
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        mount = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), fields[1])
        if place.is_relative_to(mount) and len(mount) >= len(best[1]):
            best = (fields[2], mount)
    return best


def is_network_file_system(kind: str) -> bool:
    """Whether file systems of this type are on a network."""
    return bool(_SHARED.fullmatch(kind))


_GIT_SECONDS = 2.0
_MAX_DIFF_BYTES = 1 << 22
_SECTION = "diff --git "


def describe_repository(directory: Path) -> dict[str, Any] | None:
    """Commit, branch, remote, and whether tracked files differ from the commit.

    None without a repository or git, or if git does not answer in time.
    """
    if not _is_inside(directory):
        return None
    answer = _git(directory, "status", "--porcelain=v2", "--branch", "--untracked-files=no")
    if answer is None:  # too large a repository to find changes in time
        commit = _git(directory, "rev-parse", "HEAD")
        return {"commit": commit.strip(), "dirty": None} if commit else None
    lines = answer.splitlines()
    facts = dict(line[2:].partition(" ")[::2] for line in lines if line.startswith("# "))
    commit, branch = facts.get("branch.oid", ""), facts.get("branch.head", "")
    return {
        "commit": "" if commit == "(initial)" else commit,
        "branch": "" if branch == "(detached)" else branch,
        "remote": _remote(directory),
        "dirty": any(not line.startswith("#") for line in lines),
    }


def read_git_diff(directory: Path) -> str:
    """The uncommitted changes of tracked files, without secrets; empty if git fails."""
    options = ("--no-ext-diff", "--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/")
    text = _git(directory, "diff", *options, "HEAD") or ""
    if len(text) > _MAX_DIFF_BYTES:
        text = f"{text[:_MAX_DIFF_BYTES]}\n(cut off here)\n"
    return redact("".join(_without_secret_files(text)))


def _without_secret_files(text: str) -> Iterator[str]:
    is_kept = True
    for line in text.splitlines(keepends=True):
        if line.startswith(_SECTION):
            names = line.removeprefix(_SECTION).split()
            is_kept = not any(is_secret_file(name.strip('"')) for name in names)
            if not is_kept:
                yield f"{line.rstrip()} (left out: it may hold secrets)\n"
        if is_kept:
            yield line


def _is_inside(directory: Path) -> bool:
    """Whether there is a repository; cheaper than calling git."""
    folder = directory.absolute()
    return "GIT_DIR" in os.environ or any(
        (place / ".git").exists() for place in (folder, *folder.parents)
    )


def _remote(directory: Path) -> str:
    found = _git(directory, "config", "--get-regexp", r"^remote\..*\.url$") or ""
    remotes = dict(line.partition(" ")[::2] for line in found.splitlines())
    return redact(remotes.get("remote.origin.url") or next(iter(remotes.values()), ""))


def _git(directory: Path, *arguments: str) -> str | None:
    import subprocess

    # No monitor and no locks: a description must not run programs or change the repository.
    command = ["git", "-C", str(directory), "-c", "core.fsmonitor=false", *arguments]
    try:
        answer = subprocess.run(
            command,
            capture_output=True,
            check=True,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=_GIT_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):  # no git, no repository, or no answer
        return None
    return answer.stdout
