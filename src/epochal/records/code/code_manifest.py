"""The manifest of a run's code: every copied file, and why others were skipped."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, final

from epochal import durable
from epochal.records.code.file_content import read_content

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

CODE_MANIFEST_FORMAT = 1
CODE_DIR = "code"
"""The subfolder of a run with its code."""

PROJECT_DIR = "project"
ASIDE_DIR = "aside"
CODE_MANIFEST_FILE = "manifest.json"
DIFF_FILE = "uncommitted.diff"
"""The uncommitted changes of the project's repository, in the subfolder."""

RESTORED_FILE = ".epochal-restored"
"""Lists the files that ``epochal restore`` added to a project, as lines of ``.gitignore``."""

_ATTEMPT = "attempt-"
MAX_COPY_BYTES = 1 << 32
"""The largest file that can be copied, since it is read into memory."""

_INTEGER_FIELDS = ("size", "mode", "is_redacted")
_ALWAYS_WRITTEN = ("size", "mode", "version", "digest")

SkipReason = Literal[
    "link", "fifo", "socket", "device", "submodule", "data", "large", "many", "deep", "secret",
    "ignored", "records", "unreadable", "unwritten", "odd name",
]  # fmt: skip
"""Why an entry is not copied."""


@final
@dataclass(frozen=True, slots=True)
class CodeFile:
    """One copied file."""

    path: str
    """Relative to the project, with slashes."""

    sha256: str
    """Digest of the copy, which differs from the file if it ``is_redacted``."""

    size: int
    mode: int
    is_redacted: bool = False
    """Whether the copy has secrets removed."""

    at: str = ""
    """Path of the copy below ``code``, if its name clashes with another one, as by case."""

    note: str = ""

    @property
    def place(self) -> str:
        """Path of the copy below ``code``."""
        return self.at or f"{PROJECT_DIR}/{self.path}"


@final
@dataclass(frozen=True, slots=True)
class SkippedEntry:
    """An entry that was not copied, and why."""

    path: str
    kind: SkipReason
    text: str = ""
    """The target of a link, the size of a file, the commit of a submodule, ..."""


@final
@dataclass(frozen=True, slots=True)
class Framework:
    """The version of Epochal that a run used."""

    version: str
    digest: str
    archive: str = ""
    """The name of the archive below ``code``; empty if it could not be written."""


@final
@dataclass(frozen=True, kw_only=True)
class CodeManifest:
    """The code of a run."""

    project: str
    """The folder of the project."""

    files: tuple[CodeFile, ...]
    others: tuple[SkippedEntry, ...] = ()
    framework: Framework | None = None
    left_out: int = 0
    """How many skipped entries ``others`` does not list."""

    by_path: Mapping[str, CodeFile] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_path", {file.path: file for file in self.files})

    @property
    def num_entries(self) -> int:
        """The number of files, and of links and other entries that were not copied."""
        return len(self.files) + len(self.others)

    @property
    def num_bytes(self) -> int:
        """The size of all files together."""
        return sum(file.size for file in self.files)

    @property
    def digest(self) -> str:
        """One digest of names, contents, executable bits and links."""
        tree = hashlib.sha256()
        for file in self.files:
            tree.update(f"{file.path}\0{file.sha256}\0{file.mode & 0o111:o}\n".encode())
        for other in self.others:
            if other.kind == "link":
                tree.update(f"{other.path}\0->\0{other.text}\n".encode("utf-8", "replace"))
        return tree.hexdigest()

    def to_json(self) -> bytes:
        """JSON with one line for each file."""
        own = self.framework
        head = {
            "format": CODE_MANIFEST_FORMAT,
            "project": self.project,
            "digest": self.digest,
            "epochal": None if own is None else _to_fields(own),
            "left_out": self.left_out,
        }
        return b"%s,\n%s,\n%s\n}\n" % (
            durable.encode_json(head)[:-1],
            _lines("files", self.files),
            _lines("others", self.others),
        )


def _lines(name: str, entries: Sequence[CodeFile | SkippedEntry]) -> bytes:
    lines = b",\n".join(durable.encode_json(_to_fields(entry)) for entry in entries)
    return b'"%s": [\n%s\n]' % (name.encode(), lines)


def _to_fields(value: CodeFile | SkippedEntry | Framework) -> dict[str, Any]:
    """The fields without default values."""
    found = {name: getattr(value, name) for name in value.__slots__}
    return {name: one for name, one in found.items() if one or name in _ALWAYS_WRITTEN}


def find_code_dir(run_dir: Path, attempt: int = 0) -> Path:
    """The folder with the code of an attempt: that of the last attempt that changed the code."""
    folder = run_dir / CODE_DIR
    later = [number for number in _list_attempt_dirs(folder) if number <= attempt]
    return get_attempt_dir(run_dir, max(later)) if later else folder


def get_attempt_dir(run_dir: Path, attempt: int) -> Path:
    """The folder for the code of one attempt."""
    return run_dir / CODE_DIR / f"{_ATTEMPT}{attempt}" if attempt else run_dir / CODE_DIR


def _list_attempt_dirs(folder: Path) -> list[int]:
    names = (path.name.removeprefix(_ATTEMPT) for path in folder.glob(f"{_ATTEMPT}*"))
    return [int(name) for name in names if name.isdecimal()]


def read_manifest(run_dir: Path, attempt: int = 0) -> CodeManifest | None:
    """The manifest of a run's code; None if it is missing or damaged."""
    value = durable.find_object(find_code_dir(run_dir, attempt) / CODE_MANIFEST_FILE)
    try:
        return _from_json(value) if value else None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None


def _from_json(value: Mapping[str, Any]) -> CodeManifest:
    own = value.get("epochal")
    return CodeManifest(
        project=str(value["project"]),
        files=tuple(CodeFile(**_check_fields(one, CodeFile)) for one in value["files"]),
        others=tuple(SkippedEntry(**_check_fields(one, SkippedEntry)) for one in value["others"]),
        framework=None if own is None else Framework(**_check_fields(own, Framework)),
        left_out=int(value.get("left_out", 0)),
    )


def _check_fields(
    entry: Mapping[str, Any], kind: type[CodeFile | SkippedEntry | Framework]
) -> dict[str, Any]:
    """The known fields of an entry; raises for wrong types and paths outside of the folder."""
    known = {name: value for name, value in entry.items() if name in kind.__slots__}
    for name, value in known.items():
        if not isinstance(value, int if name in _INTEGER_FIELDS else str):
            raise TypeError(name)
        if isinstance(value, int) and value < 0:
            raise ValueError(name)
    for name in ("path", "at", "archive"):
        known.get(name, "").encode()
        parts = known.get(name, "").split("/")
        if ".." in parts or (parts[0] == "" and len(parts) > 1) or "\0" in known.get(name, ""):
            raise ValueError(name)
    return known


def read_file(run_dir: Path, path: str, attempt: int = 0) -> bytes | None:
    """The content of a file as a run used it; None if there is no copy or it is damaged."""
    manifest = read_manifest(run_dir, attempt)
    file = None if manifest is None else manifest.by_path.get(path)
    return None if file is None else read_snapshot_file(find_code_dir(run_dir, attempt), file)


def read_snapshot_file(folder: Path, file: CodeFile) -> bytes | None:
    """The content of a file in the manifest of ``folder``; None if it is damaged."""
    try:
        content = read_content(folder / file.place, max_bytes=min(file.size, MAX_COPY_BYTES))
    except OSError:
        return None
    if content is None or hashlib.sha256(content.data).hexdigest() != file.sha256:
        return None
    return content.data


def read_code_digest(run_dir: Path, attempt: int = 0) -> str:
    """The digest of a run's code; empty without a copy."""
    value = durable.find_object(find_code_dir(run_dir, attempt) / CODE_MANIFEST_FILE)
    digest = value.get("digest")
    return digest if isinstance(digest, str) else ""
