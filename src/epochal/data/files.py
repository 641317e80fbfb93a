"""Files of data: local paths, patterns, and URLs that fsspec can read, copied once."""

from __future__ import annotations

from pathlib import Path

from epochal.durable.remote import RemoteError, fetch, is_url, match_urls, to_local
from epochal.errors import DataError


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
    if is_url(path):
        try:
            return match_urls(path)
        except RemoteError as error:
            raise DataError(f"data: {error}") from error
    whole = to_local(path)
    if whole.is_dir():
        raise DataError(f"data: {path!r} is a folder\n  name its files, such as '{whole}/*'")
    if whole.exists():
        return [str(whole)]
    anchor = Path(whole.anchor) if whole.anchor else Path()
    pattern = str(whole.relative_to(whole.anchor)) if whole.anchor else str(whole)
    return sorted(str(one) for one in anchor.glob(pattern) if one.is_file())


def local_path(path: str, *, is_folder: bool = False) -> Path:
    """The file or folder itself, or a local copy of what a URL names."""
    if not is_url(path):
        return to_local(path)
    try:
        return fetch(path, is_folder=is_folder)
    except RemoteError as error:
        raise DataError(f"data: {error}") from error
