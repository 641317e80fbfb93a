"""Reads changed files of a project without secrets, and writes them into a run's code folder."""

from __future__ import annotations

import hashlib
import unicodedata
from dataclasses import replace
from typing import TYPE_CHECKING, final

from epochal import durable
from epochal.records.code.code_manifest import (
    ASIDE_DIR,
    MAX_COPY_BYTES,
    CodeFile,
    CodeManifest,
    SkippedEntry,
)
from epochal.records.code.content_store import (
    CachedFile,
    ContentStore,
    FileCache,
    is_missing_file_error,
)
from epochal.records.code.file_content import FileContent, read_content
from epochal.records.code.file_kind import remove_secrets
from epochal.records.layout.os_errors import describe_os_error
from epochal.records.secrets.process_secrets import get_secret_patterns

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from epochal.records.code.file_selection import CandidateFile

_MAX_IMPORTED_BYTES = 1 << 24


@final
class CodeReader:
    """Reads the files of a project as they will be stored.

    Args:
        root: The project's folder.
        store: Holds the contents of earlier runs and what is known of unchanged files, if any.
        max_bytes: The maximum size of a file.
        key: What else the stored contents depend on; empty to read all files.
    """

    def __init__(
        self, root: Path, store: ContentStore | None, *, max_bytes: int, key: str = ""
    ) -> None:
        self.root = root
        self.max_bytes = max_bytes
        self.store = store
        self.seen = FileCache.load(self.store if key else None, self.root, key)
        self._secrets = get_secret_patterns()
        self.files: list[CodeFile] = []
        self.others: list[SkippedEntry] = []
        self.new: dict[str, bytes] = {}
        """Contents that the store lacks."""

    def read(self, found: CandidateFile) -> None:
        """Add a file that the scan of the project found."""
        known = self.seen.find(found.path, found.stamp)
        max_bytes = MAX_COPY_BYTES if found.is_wanted else self.max_bytes
        if known is not None and self._is_usable(found.path, known, max_bytes):
            self.files.append(
                CodeFile(found.path, known.sha256, known.size, found.mode, known.is_redacted)
            )
            return
        self._read(found.path, found.mode, max_bytes)

    def _is_usable(self, path: str, known: CachedFile, max_bytes: int) -> bool:
        """Whether the stored content of an unchanged file can be reused: it holds no new secret."""
        if self.store is None or not self.store.has(known.sha256, known.size):
            return False
        if not self._secrets:
            return True
        try:
            content = read_content(self.root / path, max_bytes=max_bytes)
        except OSError:
            return False
        text = "" if content is None else content.data.decode("utf-8", "surrogateescape")
        return bool(text) and not any(secret.is_in(text) for secret in self._secrets)

    def read_whole(self, path: str) -> None:
        """Add an imported file, even a large one."""
        self._read(path, 0o644, _MAX_IMPORTED_BYTES)

    def read_imported(self, before: CodeManifest) -> None:
        """Add files of an earlier attempt that the scan does not find, such as imported ones."""
        known = {file.path for file in self.files}
        for path in before.by_path:
            if path not in known and (self.root / path).is_file():
                self.read_whole(path)

    def fetch(self, file: CodeFile) -> bytes:
        """The content of a file that was added, read again if only the store has it.

        Raises:
            OSError: The file can no longer be read, or has changed.
        """
        if file.sha256 in self.new:
            return self.new[file.sha256]
        content = read_content(self.root / file.path, max_bytes=MAX_COPY_BYTES)
        data = (b"" if content is None else remove_secrets(content.data, file.path)) or b""
        if hashlib.sha256(data).hexdigest() != file.sha256:
            raise OSError("it changed while the run started")
        return data

    def _read(self, path: str, mode: int, max_bytes: int) -> None:
        try:
            content = read_content(self.root / path, max_bytes=max_bytes)
        except OSError as error:
            self.others.append(SkippedEntry(path, "unreadable", describe_os_error(error)))
            return
        if content is None:
            self.others.append(SkippedEntry(path, "large", "it grew, or is no longer a file"))
            return
        self._add_content(path, mode, content)

    def _add_content(self, path: str, mode: int, content: FileContent) -> None:
        data = remove_secrets(content.data, path)
        if data is None:
            self.others.append(SkippedEntry(path, "secret", "it contains a secret"))
            return
        sha256 = hashlib.sha256(data).hexdigest()
        is_redacted = data != content.data
        note = "" if content.is_stable else "it changed while it was read"
        self.files.append(CodeFile(path, sha256, len(data), mode, is_redacted, note=note))
        if self.store is None or not self.store.has(sha256, len(data)):
            self.new[sha256] = data
        if content.is_stable:
            self.seen.add(path, CachedFile(content.stamp, sha256, len(data), is_redacted))


@final
class CodeWriter:
    """Writes files into the code folder of a run, as hard links into the store if there is one.

    Args:
        folder: The code folder.
        reader: Provides the contents.
    """

    def __init__(self, folder: Path, reader: CodeReader) -> None:
        self.folder = folder
        self.store = reader.store
        self.fetch = reader.fetch
        self._made: set[Path] = set()

    def write(
        self, files: Iterable[CodeFile], before: Iterable[CodeFile] = ()
    ) -> tuple[list[CodeFile], list[SkippedEntry]]:
        """The files that were written, and those that could not be."""
        taken = {_casefold_path(name) for file in before for name in with_parents(file.path)}
        kept, others = [], []
        ordered = sorted(files, key=lambda file: file.path)
        folders = {_casefold_path(name) for file in ordered for name in with_parents(file.path)[1:]}
        for file in ordered:
            is_clash = _casefold_path(file.path) in taken or _casefold_path(file.path) in folders
            taken.add(_casefold_path(file.path))
            placed = self._rename_clash(file) if is_clash else file
            try:
                try:
                    self._write_file(placed)
                except OSError:  # the file system refuses the name
                    placed = self._rename_clash(file)
                    self._write_file(placed)
            except OSError as error:
                reason = describe_os_error(error)
                others.append(SkippedEntry(file.path, "unwritten", reason))
            else:
                kept.append(placed)
        return kept, others

    def _rename_clash(self, file: CodeFile) -> CodeFile:
        return replace(file, at=f"{ASIDE_DIR}/{file.sha256}")

    def _write_file(self, file: CodeFile) -> None:
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
            durable.link_or_copy(self.store.path_of(file.sha256), target)
        except OSError as error:
            if not is_missing_file_error(error):
                raise
            durable.write_readonly(target, self.fetch(file))  # removed in the meantime


def _casefold_path(path: str) -> str:
    """The path on a file system that ignores case and Unicode normalization."""
    return unicodedata.normalize("NFC", path).casefold()


def with_parents(path: str) -> list[str]:
    """A path and all its parent folders."""
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(len(parts), 0, -1)]
