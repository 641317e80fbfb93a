"""Finds the config files in a run folder, and reports missing ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal import durable
from epochal.records.folder.folder import FOLDS_DIR

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SUFFIXES = {".yaml", ".toml", ".json"}


def find_expanded_config(run_dir: Path) -> Path | None:
    """The config with all defaults; None if it is missing."""
    found = sorted((run_dir / "config").glob("expanded.*"))
    return next((path for path in found if path.suffix in _SUFFIXES), None)


def find_missing_configs(run_dir: Path, *, has_begun: bool) -> Iterator[str]:
    """One line for each missing config file.

    Args:
        run_dir: The folder of a run that has written its configs.
        has_begun: Whether it took steps, so that its components were built.
    """
    folder = run_dir / "config"
    try:
        names = {entry.name for entry in folder.iterdir()}
    except OSError:
        yield "config: missing"
        return
    if find_expanded_config(run_dir) is None:
        yield "config/expanded.*: missing"
    if "provenance.json" not in names:
        yield "config/provenance.json: missing"
    # A cross validation builds components in its folds only.
    if has_begun and "observed.json" not in names and not (run_dir / FOLDS_DIR).is_dir():
        yield "config/observed.json: missing"
    for name in _written_config_names(folder):
        if not (folder / name).is_file():
            yield f"config/{name}: missing"


def _written_config_names(folder: Path) -> list[str]:
    """The copies of the user's files, as listed in ``sources.json``."""
    try:
        sources = durable.decode_json((folder / "sources.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        sources = None
    entries = sources if isinstance(sources, list) else []
    names = [entry.get("file") for entry in entries if isinstance(entry, dict)]
    return [name for name in names if isinstance(name, str)]
