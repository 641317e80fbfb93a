"""Keeps a project's code in the folder of a run, as it is when the run starts."""

from __future__ import annotations

import hashlib
import unicodedata
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, final

from epochal import durable
from epochal.records.code.content import Content, read_content
from epochal.records.code.framework import Package, archive_name, package_dir
from epochal.records.code.manifest import (
    ASIDE,
    MANIFEST,
    File,
    Framework,
    Manifest,
    Other,
    attempt_dir,
    code_dir,
    read_manifest,
)
from epochal.records.code.store import STORE, Known, Seen, Store, is_missing
from epochal.records.code.walk import Found, Limits, Walk, choose
from epochal.records.secrets import is_secret_file, redact_bytes
from epochal.records.secrets.known import known_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

_MAX_OTHERS = 2_000
_MAX_IMPORTED_BYTES = 1 << 24
_SHOWN = 3
_TROUBLE = ("unreadable", "unwritten")
_INCOMPLETE = "the record's copy of the code is not complete"


@final
@dataclass(frozen=True, slots=True)
class Taken:
    """What came of keeping the code of a run."""

    digest: str
    """That of the whole tree; empty if nothing is kept."""

    notes: tuple[str, ...] = ()
    """What people should know."""


@final
@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """What code is kept, where from and where to.

    Args:
        project: The project's folder.
        run_dir: The folder of the run.
        home: The folder that belongs to all runs, whose store is used; None to do without.
        ignore: Lines as in ``.gitignore``: what is left out, or kept all the same.
        limits: How much is kept.
        version: That of Epochal.
        attempt: Which attempt at the run it is for.
    """

    project: Path
    run_dir: Path
    home: Path | None = None
    ignore: Sequence[str] = ()
    limits: Limits = field(default_factory=Limits)
    version: str = ""
    attempt: int = 0

    @property
    def store(self) -> Store | None:
        """Where contents are shared with other runs."""
        return None if self.home is None else Store(self.home / STORE)

    def take(self) -> Taken:
        """Keep the project's files and Epochal.

        Of an attempt that goes on with code as it was, nothing is kept again.

        Raises:
            OSError: The list cannot be written.
        """
        own = self._keep_framework()
        walk = Walk(
            self.project.absolute(),
            ignore=self.ignore,
            limits=self.limits,
            run_dir=self.run_dir.absolute(),
        )
        walk.look()
        reading = _Reading(self, key=own.digest)
        for found, is_kept in choose(walk.found, self.limits):
            if is_kept:
                reading.read(found)
            else:
                walk.others.append(Other(found.path, "many", "beyond the limit of all files"))
        before = read_manifest(self.run_dir, self.attempt) if self.attempt else None
        if before is not None:
            reading.read_imported(before)
        others = sorted([*walk.others, *reading.others], key=lambda other: other.path)
        now = Manifest(project="", files=_sorted(reading.files), others=tuple(others))
        if before is not None and before.digest == now.digest and _is_same(before.framework, own):
            return Taken(before.digest)
        return self._write(reading, others, own)

    def _write(self, reading: _Reading, others: list[Other], own: Framework) -> Taken:
        folder = attempt_dir(self.run_dir, self.attempt)
        if self.attempt and folder.is_dir():  # of one that was refused
            durable.remove_tree(folder, "code")
        folder.mkdir(parents=True, exist_ok=True)
        if self.store is not None:
            self.store.put(reading.new)
        files, unwritten = _Laying(folder, reading).lay(reading.files)
        others += unwritten
        manifest = Manifest(
            project=str(self.project.absolute()).encode("utf-8", "replace").decode(),
            files=_sorted(files),
            others=tuple(others[:_MAX_OTHERS]),
            framework=self._lay_framework(folder, own),
            left_out=max(len(others) - _MAX_OTHERS, 0),
        )
        durable.write_bytes(folder / MANIFEST, manifest.to_json())
        reading.seen.save({file.path for file in files})
        return Taken(manifest.digest, _notes(others))

    def _keep_framework(self) -> Framework:
        """Epochal itself, in the store or, without one, not yet kept anywhere."""
        try:
            package = Package.find(package_dir())
            digest = "" if self.store is None else _keep(package, self.store)
            digest = digest or package.archive()[0]
        except OSError:  # it runs from an archive, or not all of it is ours to read
            return Framework(self.version, "")
        return Framework(self.version, digest, archive_name(digest))

    def _lay_framework(self, folder: Path, own: Framework) -> Framework:
        if not own.archive:
            return own
        target = folder / own.archive
        try:
            if self.store is None or not (self.store.folder / own.archive).is_file():
                durable.keep_bytes(target, Package.find(package_dir()).archive()[1])
            else:
                durable.share(self.store.folder / own.archive, target)
        except OSError:
            return replace(own, archive="")
        return own

    def add_imported(self, imported: Mapping[str, str]) -> Taken:
        """Keep also what was left out and then imported.

        Args:
            imported: The project's files that the run imported, each with the beginning of its
                SHA-256.

        Raises:
            OSError: The list cannot be written.
        """
        manifest = read_manifest(self.run_dir, self.attempt)
        if manifest is None:
            return Taken("")
        changed = [
            name
            for name, digest in imported.items()
            if (file := manifest.by_path.get(name)) is not None
            and not (file.is_redacted or file.sha256.startswith(digest))
        ]
        missing = [name for name in imported if name not in manifest.by_path]
        notes = [f"it changed while the run started: {_list(changed)}"] if changed else []
        if missing:
            manifest, more = self._add(manifest, missing)
            notes += more
        return Taken(manifest.digest, tuple(f"{_INCOMPLETE}: {note}" for note in notes))

    def _add(self, manifest: Manifest, missing: list[str]) -> tuple[Manifest, list[str]]:
        folder = code_dir(self.run_dir, self.attempt)
        reading = _Reading(self, key="")
        lost = []
        for name in missing:
            if _is_behind_link(name, manifest.others) or is_secret_file(name):
                lost.append(name)
            else:
                reading.read_whole(name)
        if self.store is not None:
            self.store.put(reading.new)
        files, others = _Laying(folder, reading).lay(reading.files, before=manifest.files)
        lost += [other.path for other in (*reading.others, *others)]
        if files:
            again = {file.path for file in files}
            rest = tuple(other for other in manifest.others if other.path not in again)
            manifest = replace(manifest, files=_sorted([*manifest.files, *files]), others=rest)
            durable.write_bytes(folder / MANIFEST, manifest.to_json())
        return manifest, [f"imported, but not kept: {_list(lost)}"] if lost else []


@final
class _Reading:
    """Reads what has changed since it was last read, and takes secrets out of it."""

    def __init__(self, snapshot: Snapshot, *, key: str) -> None:
        self.root = snapshot.project.absolute()
        self.max_bytes = snapshot.limits.max_file_bytes
        self.store = snapshot.store
        self.seen = Seen.load(self.store if key else None, self.root, key)
        self._secrets = known_pattern()
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
        if self._secrets is None:
            return True
        try:
            content = read_content(self.root / path, max_bytes=self.max_bytes)
        except OSError:
            return False
        text = "" if content is None else content.data.decode("utf-8", "surrogateescape")
        return bool(text) and self._secrets.search(text) is None

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


@final
class _Laying:
    """Lays files into the folder of a run's code, shared with the store where there is one."""

    def __init__(self, folder: Path, reading: _Reading) -> None:
        self.folder = folder
        self.store = reading.store
        self.fetch = reading.fetch
        self._made: set[Path] = set()

    def lay(
        self, files: Iterable[File], before: Iterable[File] = ()
    ) -> tuple[list[File], list[Other]]:
        """The files as they are kept, and those that could not be."""
        taken = {_folded(name) for file in before for name in _with_parents(file.path)}
        kept, others = [], []
        ordered = sorted(files, key=lambda file: file.path)
        folders = {_folded(name) for file in ordered for name in _with_parents(file.path)[1:]}
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
            durable.keep_bytes(target, self.fetch(file))
            return
        try:
            durable.share(self.store.place_of(file.sha256), target)
        except OSError as error:
            if not is_missing(error):
                raise
            durable.keep_bytes(target, self.fetch(file))  # removed in this very moment


def _keep(package: Package, store: Store) -> str:
    """The digest of Epochal, once it is in the store; empty if that cannot be written."""
    try:
        return store.keep_package(package)
    except OSError:
        return ""


def _folded(path: str) -> str:
    """The name that a file system would see which knows neither case nor accents' spelling."""
    return unicodedata.normalize("NFC", path).casefold()


def _with_parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(len(parts), 0, -1)]


def _is_same(before: Framework | None, now: Framework) -> bool:
    return before is not None and before.digest == now.digest


def _sorted(files: Iterable[File]) -> tuple[File, ...]:
    return tuple(sorted(files, key=lambda file: file.path))


def _is_behind_link(path: str, others: Iterable[Other]) -> bool:
    links = {other.path for other in others if other.kind == "link"}
    return any(name in links for name in _with_parents(path))


def _notes(others: Sequence[Other]) -> tuple[str, ...]:
    failed = [f"{one.path} ({one.text})" for one in others if one.kind in _TROUBLE]
    if not failed:
        return ()
    return (f"{_INCOMPLETE}: {_list(failed)}",)


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
