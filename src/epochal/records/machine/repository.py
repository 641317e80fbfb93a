"""Describes the git repository of a project: commit, branch, remote, changes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from epochal.records.secrets import is_secret_file, redact

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
