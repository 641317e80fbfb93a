"""Compares the code of runs: differing files and their lines, without git."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, final

from epochal.records.code.code_manifest import find_code_dir, read_manifest, read_snapshot_file
from epochal.records.compare.difference import SectionComparison, compare_tables, git_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from epochal.records.code.code_manifest import CodeFile, CodeManifest
    from epochal.records.folder.reader import RunRecord

MAX_BYTES = 512 * 1024
"""Larger files are compared by digest only."""

MAX_LINES = 20_000
"""Longer files are compared by digest only, since a diff takes long."""

_CONTEXT = 3
_DIGITS = 12
_SNIFFED_BYTES = 8192

CodeSource = Literal["snapshot", "imports", "nothing"]


@final
@dataclass(frozen=True, slots=True)
class FileVersion:
    """A file in one run."""

    digest: str
    size: int | None = None
    """Bytes; None if only the digest is known."""

    is_executable: bool = False


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class FileDifference:
    """A file that differs between runs."""

    path: str
    versions: tuple[FileVersion | None, ...]
    """One for each run; None where it is missing."""

    added: int = 0
    """For two runs, the number of lines that only the second has."""

    removed: int = 0
    lines: tuple[str, ...] = ()
    """For two runs, the unified diff, without line ends."""

    note: str = ""
    """Why there are no lines: the file is binary, too large, or was not copied."""


@final
@dataclass(frozen=True, kw_only=True)
class CodeComparison:
    """The code of several runs."""

    files: tuple[FileDifference, ...] = ()
    num_same: int = 0
    source: CodeSource = "snapshot"
    """Whether snapshots were compared, or only the digests of imported files."""

    epochal: tuple[str, ...] = ()
    """Version and digest of Epochal in each run; empty if equal or unknown."""

    epochal_files: tuple[str, ...] = ()
    """The files of Epochal that differ, if the runs have copies."""

    git: SectionComparison
    """Commit, branch, and whether there were uncommitted changes."""


def compare_code(records: Sequence[RunRecord]) -> CodeComparison:
    """The differing files of some runs, in their last attempts."""
    manifests = [read_manifest(one.path, _last_attempt(one)) for one in records]
    known = [manifest for manifest in manifests if manifest is not None]
    git = compare_tables([git_table(one) for one in records])
    if len(known) < len(records):
        return _compare_imports(records, git)
    trees = [_versions(manifest) for manifest in known]
    found = []
    for path, versions in _differing(trees):
        files = tuple(manifest.by_path.get(path) for manifest in known)
        found.append(_describe(path, versions, files, records))
    epochal = _frameworks(known)
    return CodeComparison(
        files=tuple(found),
        num_same=_count_same(trees),
        epochal=epochal,
        epochal_files=_framework_files(known, records) if epochal else (),
        git=git,
    )


def _last_attempt(record: RunRecord) -> int:
    return max((one.attempt for one in record.attempts), default=0)


def _versions(manifest: CodeManifest) -> dict[str, FileVersion]:
    kept = {
        file.path: FileVersion(file.sha256[:_DIGITS], file.size, bool(file.mode & 0o111))
        for file in manifest.files
    }
    links = {
        other.path: FileVersion(f"-> {other.text}")
        for other in manifest.others
        if other.kind == "link"
    }
    return kept | links


def _compare_imports(records: Sequence[RunRecord], git: SectionComparison) -> CodeComparison:
    """Compare runs without a snapshot by the digests of imported files."""
    imported = [next((a.code for a in reversed(one.attempts) if a.code), {}) for one in records]
    if not all(imported):
        return CodeComparison(source="nothing", git=git)
    trees = [{path: FileVersion(digest) for path, digest in code.items()} for code in imported]
    files = tuple(
        FileDifference(path=path, versions=versions, note="only its digest was kept")
        for path, versions in _differing(trees)
    )
    return CodeComparison(files=files, num_same=_count_same(trees), source="imports", git=git)


def _differing(
    trees: Sequence[Mapping[str, FileVersion]],
) -> list[tuple[str, tuple[FileVersion | None, ...]]]:
    paths = sorted({path for tree in trees for path in tree})
    rows = [(path, tuple(tree.get(path) for tree in trees)) for path in paths]
    return [(path, versions) for path, versions in rows if len(set(versions)) > 1]


def _count_same(trees: Sequence[Mapping[str, FileVersion]]) -> int:
    return len({path for tree in trees for path in tree}) - len(_differing(trees))


def _frameworks(manifests: Sequence[CodeManifest]) -> tuple[str, ...]:
    names = tuple(
        f"{own.version} {own.digest[:_DIGITS]}" if (own := one.framework) else ""
        for one in manifests
    )
    return names if all(names) and len(set(names)) > 1 else ()


def _framework_files(
    manifests: Sequence[CodeManifest], records: Sequence[RunRecord]
) -> tuple[str, ...]:
    """The differing files of Epochal; none if an archive is missing or damaged."""
    import zipfile

    trees = []
    for manifest, record in zip(manifests, records, strict=True):
        folder, own = find_code_dir(record.path, _last_attempt(record)), manifest.framework
        try:
            with zipfile.ZipFile(folder / (own.archive if own else "")) as archive:
                listed = archive.infolist()
        except (OSError, zipfile.BadZipFile):
            return ()
        trees.append({one.filename: FileVersion(f"{one.CRC:08x}", one.file_size) for one in listed})
    return tuple(path for path, _ in _differing(trees))


def _describe(
    path: str,
    versions: tuple[FileVersion | None, ...],
    files: tuple[CodeFile | None, ...],
    records: Sequence[RunRecord],
) -> FileDifference:
    """The difference of one file, with lines for two runs only."""
    if len(records) != 2:
        return FileDifference(path=path, versions=versions)
    is_link = any(file is None and one for file, one in zip(files, versions, strict=True))
    is_large = any(file is not None and file.size > MAX_BYTES for file in files)
    if is_link or is_large:
        return FileDifference(path=path, versions=versions, note="link" if is_link else "large")
    before, after = (_read(file, one) for file, one in zip(files, records, strict=True))
    lines: list[str] = []
    if before is None or after is None:
        note = "the copy is damaged"
    elif is_binary(before) or is_binary(after):
        note = "binary"
    else:
        lines, note = diff_texts(before, after, path)
    return FileDifference(
        path=path,
        versions=versions,
        added=sum(line.startswith("+") for line in lines[2:]),
        removed=sum(line.startswith("-") for line in lines[2:]),
        lines=tuple(lines),
        note=note,
    )


def _read(file: CodeFile | None, record: RunRecord) -> bytes | None:
    """The copy of a file; empty if the run has no such file, None if it is damaged."""
    folder = find_code_dir(record.path, _last_attempt(record))
    return b"" if file is None else read_snapshot_file(folder, file)


def is_binary(content: bytes) -> bool:
    """Whether a diff cannot show these bytes as text."""
    head = content[:_SNIFFED_BYTES]
    if b"\0" in head:
        return True
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        control = sum(byte < 32 and byte not in b"\t\n\r\f\x1b" for byte in head)
        return control * 20 > len(head)
    return False


def diff_texts(before: bytes, after: bytes, path: str) -> tuple[list[str], str]:
    """The unified diff of two texts; none, and the reason, if they are too long or equal."""
    old, new = (_split(content) for content in (before, after))
    if max(len(old), len(new)) > MAX_LINES:
        return [], "large"
    names = (f"A/{path}", f"B/{path}")
    lines = list(difflib.unified_diff(old, new, *names, n=_CONTEXT, lineterm=""))
    return lines, "" if lines else "empty" if before == after == b"" else "other rights"


def _split(content: bytes) -> list[str]:
    """The lines of a text, with marks for CRLF and a missing last line end."""
    lines = content.decode("utf-8", "replace").split("\n")
    last = lines.pop()
    shown = [f"{line[:-1]}^M" if line.endswith("\r") else line for line in lines]
    return [*shown, f"{last} (no line end)"] if last else shown
