"""Decides which files of a project are not copied: ``.gitignore`` lines and usual exclusions."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Iterable

_LAST_STARS = re.compile(r"(^!?|/)(\*+)(/?)$")
_FOLDERS = frozenset(("__pycache__", "node_modules", "site-packages"))
_TOP_FOLDERS = frozenset(("build", "dist"))
_SUFFIXES = frozenset((
    "pyc", "pyo", "so", "log", "tmp", "swp", "pt", "pth", "ckpt", "bin", "onnx", "safetensors",
    "gguf", "npy", "npz", "h5", "hdf5", "parquet", "arrow", "tfrecord", "lmdb", "mdb", "db",
    "sqlite", "zip", "tar", "gz", "bz2", "xz", "zst", "7z", "whl", "mp4", "avi", "mkv", "mov",
    "wav", "flac", "mp3",
))  # fmt: skip


@final
class IgnoreRules:
    """Lines with the syntax of ``.gitignore``, of one or more folders."""

    def __init__(self) -> None:
        self._patterns: dict[str, list[tuple[re.Pattern[str], bool]]] = {}
        """By folder: each pattern and whether it ignores; the last line comes first."""

    def add(self, lines: Iterable[str], *, base: str = "") -> None:
        """Add lines that apply below the folder ``base``, which is empty or ends with a slash.

        Invalid lines are skipped, as git does.
        """
        found = [pattern for line in lines for pattern in _compile(line)]
        self._patterns[base] = [*reversed(found), *self._patterns.get(base, ())]

    def find(self, path: str, *, is_folder: bool) -> bool | None:
        """Whether ``path`` is ignored; None if no line matches it.

        Lines of inner folders outrank those of outer ones. Only the path itself is matched:
        ignored folders are not scanned.
        """
        base = path
        while base:
            base = base[: base.rstrip("/").rfind("/") + 1]
            inner = path[len(base) :] + "/" * is_folder
            for regex, is_ignored in self._patterns.get(base, ()):
                if regex.fullmatch(inner):
                    return is_ignored
        return None


def is_rarely_code(path: str, *, is_folder: bool) -> bool:
    """Whether a path is rarely code: hidden files, caches, weights, data and archives."""
    name = path.rpartition("/")[2]
    _, dot, suffix = name.rpartition(".")
    if is_folder and (name in _FOLDERS or path in _TOP_FOLDERS or dot + suffix == ".egg-info"):
        return True
    return name.startswith(".") or name.endswith("~") or bool(dot and suffix in _SUFFIXES)


def _compile(line: str) -> list[tuple[re.Pattern[str], bool]]:
    from pathspec import GitIgnoreSpec

    text = line if line.endswith("\\ ") else line.rstrip()
    text = re.sub(r"^(!?)\./", r"\1", text)
    # For these, pathspec's expressions match only the beginning of a path.
    text = _LAST_STARS.sub(lambda m: m[1] + ("**/?*" if m[2] == "**" else "?*") + m[3], text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # from re, about sets such as [[a]
            patterns = list(GitIgnoreSpec.from_lines([text]).patterns)
    except (ValueError, re.error):
        return []
    return [(one.regex, bool(one.include)) for one in patterns if one.regex is not None]
