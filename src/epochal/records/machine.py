"""What a run ran on: machine, Python, packages, state of the code."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

from epochal.records.process import host_name

_GIT_SECONDS = 2.0


def describe_machine(directory: Path | None = None) -> dict[str, object]:
    """Facts about this machine and its software, found without importing torch.

    Args:
        directory: Where the code of the run lies, for its git commit; the current one
            when None.
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
        "packages": _package_versions(),
        "git": _git_state(directory or Path.cwd()),
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
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


def _package_versions() -> dict[str, str]:
    from importlib.metadata import distributions

    versions: dict[str, str] = {}
    for distribution in distributions():
        name = distribution.name  # None for the remains of a broken installation
        if name and name.lower() not in versions:  # the first on the path is the one in use
            versions[name.lower()] = distribution.version
    return dict(sorted(versions.items()))


def _git_state(directory: Path) -> dict[str, object] | None:
    commit = _git(directory, "rev-parse", "HEAD")
    if not commit:
        return None
    changes = _git(directory, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": None if changes is None else bool(changes)}


def _git(directory: Path, *arguments: str) -> str | None:
    import subprocess

    # No monitor and no locks: looking at a repository must not run or change anything in it.
    command = ["git", "-C", str(directory), "-c", "core.fsmonitor=false", *arguments]
    try:
        answer = subprocess.run(
            command,
            capture_output=True,
            check=True,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=_GIT_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):  # no git, no repository, or no answer
        return None
    return answer.stdout.strip()
