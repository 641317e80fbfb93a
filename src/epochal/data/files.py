"""Files of data: local paths, patterns, and URLs that fsspec can read, copied once."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any
from uuid import uuid4

from epochal.errors import DataError

_CACHE_VARIABLE = "EPOCHAL_DATA_CACHE"


def find_files(paths: str | list[str]) -> list[str]:
    """The files that paths, patterns such as ``data/*.jsonl`` or URLs name, sorted by name.

    URLs such as ``s3://bucket/part-*.jsonl`` stay URLs; ``local_path`` copies them.
    """
    found: list[str] = []
    for path in [paths] if isinstance(paths, str | Path) else paths:
        matches = _match(str(path))
        if not matches:
            raise DataError(
                f"data: no file matches {str(path)!r}\n"
                f"  relative paths start from the current folder, {Path.cwd()}"
            )
        found += matches
    return found


def _match(path: str) -> list[str]:
    if "://" in path:
        if not any(mark in path for mark in "*?["):
            return [path]
        system, inner = _open_system(path)
        return sorted(system.unstrip_protocol(one) for one in system.glob(inner))
    whole = Path(path).expanduser()
    if whole.exists():
        return [str(whole)]
    anchor = Path(whole.anchor) if whole.anchor else Path()
    pattern = str(whole.relative_to(whole.anchor)) if whole.anchor else str(whole)
    return sorted(str(one) for one in anchor.glob(pattern) if one.is_file())


def local_path(path: str) -> Path:
    """The file itself, or a local copy of what a URL names.

    Copies are kept in ``$EPOCHAL_DATA_CACHE``, else in ``~/.cache/epochal/data``; a file that
    changed at its source is copied again.
    """
    if "://" not in path:
        return Path(path)
    system, inner = _open_system(path)
    version = f"{path}\n{system.ukey(inner)}"
    folder = Path(os.environ.get(_CACHE_VARIABLE) or "~/.cache/epochal/data").expanduser()
    name = hashlib.sha256(version.encode()).hexdigest()[:24]
    target = folder / f"{name}-{Path(inner).name}"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        partial = folder / f".{target.name}.{uuid4().hex}"
        try:
            system.get_file(inner, str(partial))
            partial.replace(target)  # whole, or not there
        finally:
            partial.unlink(missing_ok=True)
    return target


def _open_system(url: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs  # type: ignore[import-untyped]
    except ImportError as error:
        raise DataError(
            f"data: {url!r} needs fsspec\n  install it: pip install 'epochal[data]'"
        ) from error
    try:
        system, inner = url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise DataError(f"data: {url!r}: {error}\n  install what reads such URLs") from error
    return system, inner
