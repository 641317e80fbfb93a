"""Copies the code of a project and of Epochal into a run folder."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, final

from epochal import durable
from epochal.records.code.code_manifest import (
    CODE_MANIFEST_FILE,
    CodeFile,
    CodeManifest,
    Framework,
    SkippedEntry,
    find_code_dir,
    get_attempt_dir,
    read_manifest,
)
from epochal.records.code.code_reader import CodeReader, CodeWriter, with_parents
from epochal.records.code.content_store import CODE_STORE_DIR, ContentStore, FileCache
from epochal.records.code.file_selection import SnapshotLimits, select_files
from epochal.records.code.framework import FrameworkPackage, get_archive_name, get_package_dir
from epochal.records.code.project_scan import ProjectScanner
from epochal.records.secrets import is_secret_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

_MAX_SKIPPED = 2_000
_SHOWN = 3
_FAILED_REASONS = ("unreadable", "unwritten")
_LIMIT_REASONS = ("data", "large", "many", "secret")
_CHANGED = "it changed while the run started"
_INCOMPLETE = "the record's copy of the code is not complete"


@final
@dataclass(frozen=True, slots=True)
class SnapshotResult:
    """The result of a snapshot."""

    digest: str
    """Digest of the code; empty if nothing is copied."""

    notes: tuple[str, ...] = ()
    """Messages for the user."""


@final
@dataclass(frozen=True, kw_only=True)
class CodeSnapshot:
    """The copy of a project's code for one attempt of a run.

    Args:
        project: The folder of the project.
        run_dir: The folder of the run.
        home: The folder ``.epochal`` with the store of contents; None for no store.
        ignore: Lines as in ``.gitignore``: what is skipped, or included with ``!``.
        limits: Limits on the copy.
        version: The version of Epochal.
        attempt: The attempt.
    """

    project: Path
    run_dir: Path
    home: Path | None = None
    ignore: Sequence[str] = ()
    limits: SnapshotLimits = field(default_factory=SnapshotLimits)
    version: str = ""
    attempt: int = 0

    @property
    def store(self) -> ContentStore | None:
        """The store of contents that runs share."""
        return None if self.home is None else ContentStore(self.home / CODE_STORE_DIR)

    def take(self) -> SnapshotResult:
        """Copy the files of the project and Epochal, unless an earlier attempt has the same code.

        Raises:
            OSError: The manifest cannot be written.
        """
        own = self._store_framework()
        scanner = ProjectScanner(
            self.project.absolute(),
            ignore=self.ignore,
            limits=self.limits,
            run_dir=self.run_dir.absolute(),
        )
        scanner.scan()
        reader = self._make_reader(own.digest)
        chosen, limited = select_files(scanner.found, self.limits)
        for found in chosen:
            reader.read(found)
        before = read_manifest(self.run_dir, self.attempt) if self.attempt else None
        if before is not None:
            reader.read_imported(before)
        others = sorted([*scanner.others, *limited, *reader.others], key=lambda other: other.path)
        now = CodeManifest(project="", files=_sorted(reader.files), others=tuple(others))
        if before is not None and before.digest == now.digest and _is_same(before.framework, own):
            return SnapshotResult(before.digest)
        return self._write(reader, others, own)

    def _make_reader(self, key: str) -> CodeReader:
        limit = self.limits.max_file_bytes
        return CodeReader(self.project.absolute(), self.store, max_bytes=limit, key=key)

    def _write(
        self, reader: CodeReader, others: list[SkippedEntry], own: Framework
    ) -> SnapshotResult:
        folder = get_attempt_dir(self.run_dir, self.attempt)
        if self.attempt and folder.is_dir():  # from an attempt that was refused
            durable.remove_tree(folder, "code")
        folder.mkdir(parents=True, exist_ok=True)
        if self.store is not None:
            self.store.put(reader.new)
        files, unwritten = CodeWriter(folder, reader).write(reader.files)
        others += unwritten
        manifest = CodeManifest(
            project=str(self.project.absolute()).encode("utf-8", "replace").decode(),
            files=_sorted(files),
            others=tuple(others[:_MAX_SKIPPED]),
            framework=self._write_framework(folder, own),
            left_out=max(len(others) - _MAX_SKIPPED, 0),
        )
        durable.write_bytes(folder / CODE_MANIFEST_FILE, manifest.to_json())
        notes = _notes(others, reader.seen)
        reader.seen.save({file.path for file in files})
        return SnapshotResult(manifest.digest, notes)

    def _store_framework(self) -> Framework:
        """Add Epochal to the store, if there is one."""
        try:
            package = FrameworkPackage.find(get_package_dir())
            digest = "" if self.store is None else _store_package(package, self.store)
            digest = digest or package.archive()[0]
        except OSError:  # it runs from an archive, or is not readable
            return Framework(self.version, "")
        return Framework(self.version, digest, get_archive_name(digest))

    def _write_framework(self, folder: Path, own: Framework) -> Framework:
        if not own.archive:
            return own
        target = folder / own.archive
        try:
            if self.store is None or not (self.store.folder / own.archive).is_file():
                durable.write_readonly(
                    target, FrameworkPackage.find(get_package_dir()).archive()[1]
                )
            else:
                durable.link_or_copy(self.store.folder / own.archive, target)
        except OSError:
            return replace(own, archive="")
        return own

    def add_imported(self, imported: Mapping[str, str]) -> SnapshotResult:
        """Copy imported files that were skipped.

        Args:
            imported: The imported files of the project, each with the beginning of its SHA-256.

        Raises:
            OSError: The manifest cannot be written.
        """
        manifest = read_manifest(self.run_dir, self.attempt)
        if manifest is None:
            return SnapshotResult("")
        changed = [
            name
            for name, digest in imported.items()
            if (file := manifest.by_path.get(name)) is not None
            and not (file.is_redacted or file.sha256.startswith(digest))
        ]
        missing = [name for name in imported if name not in manifest.by_path]
        notes = [f"{_CHANGED}: {_list(changed)}"] if changed else []
        if changed:
            files = [
                replace(file, note=_CHANGED) if file.path in changed else file
                for file in manifest.files
            ]
            manifest = replace(manifest, files=tuple(files))
            self._rewrite(manifest)
        if missing:
            manifest, more = self._add(manifest, missing)
            notes += more
        return SnapshotResult(manifest.digest, tuple(f"{_INCOMPLETE}: {note}" for note in notes))

    def _rewrite(self, manifest: CodeManifest) -> None:
        folder = find_code_dir(self.run_dir, self.attempt)
        durable.write_bytes(folder / CODE_MANIFEST_FILE, manifest.to_json())

    def _add(self, manifest: CodeManifest, missing: list[str]) -> tuple[CodeManifest, list[str]]:
        folder = find_code_dir(self.run_dir, self.attempt)
        reader = self._make_reader("")
        lost = []
        for name in missing:
            if _is_behind_link(name, manifest.others) or is_secret_file(name):
                lost.append(name)
            else:
                reader.read_whole(name)
        if self.store is not None:
            self.store.put(reader.new)
        files, others = CodeWriter(folder, reader).write(reader.files, before=manifest.files)
        lost += [other.path for other in (*reader.others, *others)]
        if files:
            added = {file.path for file in files}
            rest = tuple(other for other in manifest.others if other.path not in added)
            manifest = replace(manifest, files=_sorted([*manifest.files, *files]), others=rest)
            self._rewrite(manifest)
        return manifest, [f"imported, but not kept: {_list(lost)}"] if lost else []


def _store_package(package: FrameworkPackage, store: ContentStore) -> str:
    """Add Epochal to the store; returns its digest, or nothing if that fails."""
    try:
        return store.keep_package(package)
    except OSError:
        return ""


def _is_same(before: Framework | None, now: Framework) -> bool:
    return before is not None and before.digest == now.digest


def _sorted(files: Iterable[CodeFile]) -> tuple[CodeFile, ...]:
    return tuple(sorted(files, key=lambda file: file.path))


def _is_behind_link(path: str, others: Iterable[SkippedEntry]) -> bool:
    links = {other.path for other in others if other.kind == "link"}
    return any(name in links for name in with_parents(path))


def _notes(others: Sequence[SkippedEntry], seen: FileCache) -> tuple[str, ...]:
    """Report failures every time, and files skipped for their size or content once."""
    failed = [f"{one.path} ({one.text})" for one in others if one.kind in _FAILED_REASONS]
    notes = [f"{_INCOMPLETE}: {_list(failed)}"] if failed else []
    limited = [one for one in others if one.kind in _LIMIT_REASONS and one.text]
    if seen.update_reported(frozenset(one.path for one in limited[:_MAX_SKIPPED])):
        names = _list([f"{one.path} ({one.text})" for one in limited])
        notes.append(f"not in the record's copy of the code: {names}{_hint_to_keep(limited)}")
    return tuple(notes)


def _hint_to_keep(limited: Sequence[SkippedEntry]) -> str:
    large = [f"!{one.path}" for one in limited if one.kind != "secret" and one.path != "."]
    return f"; to keep more: record.ignore: {large[:_SHOWN]}" if large else ""


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
