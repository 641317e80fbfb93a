"""Reads the files of a project that have changed since they were last read, without secrets."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, final

from epochal.records.code.content import Content, read_content
from epochal.records.code.manifest import File, Manifest, Other
from epochal.records.code.store import Known, Seen, Store
from epochal.records.secrets import redact_bytes
from epochal.records.secrets.known import known_secrets

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.records.code.choice import Found

_MAX_IMPORTED_BYTES = 1 << 24


@final
class Reading:
    """The files of a project, as they are to be kept.

    Args:
        root: The project's folder.
        store: What contents are kept already, and what is known of unchanged files; None for
            nothing.
        max_bytes: How large a file may be.
        key: What else the kept contents depend on; empty to read everything.
    """

    def __init__(self, root: Path, store: Store | None, *, max_bytes: int, key: str = "") -> None:
        self.root = root
        self.max_bytes = max_bytes
        self.store = store
        self.seen = Seen.load(self.store if key else None, self.root, key)
        self._secrets = known_secrets()
        self.files: list[File] = []
        self.others: list[Other] = []
        self.new: dict[str, bytes] = {}
        """Contents that the store lacks."""

    def read(self, found: Found) -> None:
        """Take in a file that a walk has found."""
        known = self.seen.find(found.path, found.stamp)
        if known is not None and self._is_still_good(found.path, known):
            self.files.append(
                File(found.path, known.sha256, known.size, found.mode, known.is_redacted)
            )
            return
        self._read(found.path, found.mode, self.max_bytes)

    def _is_still_good(self, path: str, known: Known) -> bool:
        """Whether what is kept of an unchanged file can be used: it may hold a new secret."""
        if self.store is None or not self.store.has(known.sha256, known.size):
            return False
        if not self._secrets:
            return True
        try:
            content = read_content(self.root / path, max_bytes=self.max_bytes)
        except OSError:
            return False
        text = "" if content is None else content.data.decode("utf-8", "surrogateescape")
        return bool(text) and not any(secret.is_in(text) for secret in self._secrets)

    def read_whole(self, path: str) -> None:
        """Take in a file that was imported, also a large one."""
        self._read(path, 0o644, _MAX_IMPORTED_BYTES)

    def read_imported(self, before: Manifest) -> None:
        """Take in what an earlier attempt imported, and what no walk finds."""
        known = {file.path for file in self.files}
        for path in before.by_path:
            if path not in known and (self.root / path).is_file():
                self.read_whole(path)

    def fetch(self, file: File) -> bytes:
        """The content of a file that was taken in; read again if only the store had it.

        Raises:
            OSError: It cannot be read any more, or is another one by now.
        """
        if file.sha256 in self.new:
            return self.new[file.sha256]
        content = read_content(self.root / file.path, max_bytes=_MAX_IMPORTED_BYTES)
        data = b"" if content is None else redact_bytes(content.data, name=file.path)
        if hashlib.sha256(data).hexdigest() != file.sha256:
            raise OSError("it changed while it was kept")
        return data

    def _read(self, path: str, mode: int, max_bytes: int) -> None:
        try:
            content = read_content(self.root / path, max_bytes=max_bytes)
        except OSError as error:
            self.others.append(Other(path, "unreadable", (error.strerror or str(error)).lower()))
            return
        if content is None:
            self.others.append(Other(path, "large", "it grew, or became another thing"))
            return
        self._take(path, mode, content)

    def _take(self, path: str, mode: int, content: Content) -> None:
        data = redact_bytes(content.data, name=path)
        sha256 = hashlib.sha256(data).hexdigest()
        is_redacted = data != content.data
        note = "" if content.is_steady else "it changed while it was read"
        self.files.append(File(path, sha256, len(data), mode, is_redacted, note=note))
        if self.store is None or not self.store.has(sha256, len(data)):
            self.new[sha256] = data
        if content.is_steady:
            self.seen.add(path, Known(content.stamp, sha256, len(data), is_redacted))
