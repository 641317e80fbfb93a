"""Lays files into the folder of a run's code, shared with the store where there is one."""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from typing import TYPE_CHECKING, final

from epochal import durable
from epochal.records.code.manifest import ASIDE, File, Other
from epochal.records.code.store import is_missing

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from epochal.records.code.reading import Reading


@final
class Laying:
    """A folder that is being filled.

    Args:
        folder: The folder of the code.
        reading: Where the contents come from.
    """

    def __init__(self, folder: Path, reading: Reading) -> None:
        self.folder = folder
        self.store = reading.store
        self.fetch = reading.fetch
        self._made: set[Path] = set()

    def lay(
        self, files: Iterable[File], before: Iterable[File] = ()
    ) -> tuple[list[File], list[Other]]:
        """The files as they are kept, and those that could not be."""
        taken = {_folded(name) for file in before for name in with_parents(file.path)}
        kept, others = [], []
        ordered = sorted(files, key=lambda file: file.path)
        folders = {_folded(name) for file in ordered for name in with_parents(file.path)[1:]}
        for file in ordered:
            is_clash = _folded(file.path) in taken or _folded(file.path) in folders
            taken.add(_folded(file.path))
            placed = self._aside(file) if is_clash else file
            try:
                try:
                    self._place(placed)
                except OSError:  # a name that cannot be here, though it could be there
                    placed = self._aside(file)
                    self._place(placed)
            except OSError as error:
                reason = (error.strerror or str(error)).lower()
                others.append(Other(file.path, "unwritten", reason))
            else:
                kept.append(placed)
        return kept, others

    def _aside(self, file: File) -> File:
        return replace(file, at=f"{ASIDE}/{file.sha256}")

    def _place(self, file: File) -> None:
        target = self.folder / file.place
        if target.parent not in self._made:
            target.parent.mkdir(parents=True, exist_ok=True)
            self._made.add(target.parent)
        if file.at and target.is_file():
            return
        if self.store is None:
            durable.write_readonly(target, self.fetch(file))
            return
        try:
            durable.link_or_copy(self.store.place_of(file.sha256), target)
        except OSError as error:
            if not is_missing(error):
                raise
            durable.write_readonly(target, self.fetch(file))  # removed in this very moment


def _folded(path: str) -> str:
    """The name that a file system would see which knows neither case nor accents' spelling."""
    return unicodedata.normalize("NFC", path).casefold()


def with_parents(path: str) -> list[str]:
    """A path and all folders above it."""
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(len(parts), 0, -1)]
