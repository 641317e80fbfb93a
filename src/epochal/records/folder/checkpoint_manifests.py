"""Reads and verifies the manifests of checkpoints, without their tensors.

A checkpoint is a folder; its ``manifest.json`` names its other files with their sizes and
SHA-256. The order of checkpoints comes from manifests, never from names, times or links.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, final

from typing_extensions import override

from epochal import durable
from epochal.errors import RecordError
from epochal.records.layout.os_errors import describe_os_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

FORMAT = 1
MANIFEST_FILE = "manifest.json"
TENSORS_FILE = "tensors.safetensors"
STATE_FILE = "state.json"
SHARD_PREFIX = "shard-"
"""Prefix of files with the parts of tensors that one of several processes had."""

DAMAGED_SUFFIX = ".damaged"
"""Suffix of checkpoints that were found damaged and renamed."""

_END_REASONS = {"end", "error", "preempted"}

LINK_NAMES = ("last", "best")
"""Links to checkpoints for users; never read by Epochal."""


@final
@dataclass(frozen=True, slots=True)
class StoredFile:
    """The expected size and digest of a file of a checkpoint."""

    size: int
    sha256: str


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointManifest:
    """The facts about a checkpoint, and its files."""

    path: Path
    """The folder of the checkpoint."""

    files: Mapping[str, StoredFile]
    format: int = FORMAT
    run: str = ""
    """The id of the run that wrote it."""

    attempt: int = 0
    step: int = 0
    epoch: int = 0
    samples: int = 0
    time: str = ""
    reason: str = ""
    """Why it was written, such as ``every`` or ``preempted``."""

    monitor: str = ""
    """The monitored metric; empty without one."""

    mode: Literal["min", "max"] = "min"
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The values measured at this step, including the monitored one."""

    torch: str = ""
    config: str = ""
    """A digest of the expanded config."""

    code: str = ""
    """A digest of the project's code."""

    data: Mapping[str, Any] = field(default_factory=dict)
    """The fingerprint of the data of each split."""

    choices: Mapping[str, Any] = field(default_factory=dict)
    """What each ``auto`` was resolved to."""

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self.path.name

    @property
    def order(self) -> tuple[int, int, str]:
        """Sort key from oldest to newest."""
        return (self.attempt, self.step, self.name)

    @property
    def is_in_parts(self) -> bool:
        """Whether each of several processes has saved a part of it."""
        return any(name.startswith(SHARD_PREFIX) for name in self.files)

    @property
    def is_regular(self) -> bool:
        """Whether it was saved for another reason than the end of the run."""
        return not {*self.reason.split(", ")} <= _END_REASONS

    @property
    def score(self) -> float | None:
        """The monitored value, negated if lower is better; None if unknown or NaN."""
        value = self.metrics.get(self.monitor)
        if value is None or math.isnan(value):
            return None
        return value if self.mode == "max" else -value


MANIFEST_FIELDS = frozenset(field.name for field in fields(CheckpointManifest)) - {
    "path",
    "files",
    "format",
}
"""The fields that the writer of a checkpoint sets."""


@final
@dataclass(frozen=True, slots=True)
class CheckpointDamage:
    """Why a checkpoint cannot be used."""

    path: Path
    """The folder of the checkpoint."""

    file: str
    """The damaged file."""

    what: str

    @override
    def __str__(self) -> str:
        return f"{self.path / self.file}: damaged: {self.what}"


def encode_manifest(manifest: CheckpointManifest) -> bytes:
    """The text of ``manifest.json``; its ``digest`` covers all other fields."""
    plain = {item.name: getattr(manifest, item.name) for item in fields(manifest)}
    del plain["path"]
    text = json.loads(durable.encode_json(plain))
    return durable.encode_json({**text, "digest": _digest(text)}, indent=1) + b"\n"


def read_manifest(path: Path) -> CheckpointManifest:
    """The manifest of the checkpoint ``path``; raises RecordError if it cannot be read."""
    found = _read(path)
    if isinstance(found, CheckpointDamage):
        raise RecordError(f"{found}\n  `ls {path.parent}` shows the other checkpoints")
    return found


def verify_checkpoint(path: Path) -> CheckpointDamage | None:
    """The damage of the checkpoint ``path``, if any; reads every byte of it."""
    found = _read(path)
    return found if isinstance(found, CheckpointDamage) else _check_files(found)


def find_checkpoints(folder: Path) -> list[CheckpointManifest]:
    """The checkpoints in ``folder`` with readable manifests, oldest first; files unverified."""
    return _read_all(folder)[0]


def find_newest_checkpoint(
    folder: Path,
) -> tuple[CheckpointManifest | None, list[CheckpointDamage]]:
    """The newest undamaged checkpoint, and the damage of newer ones."""
    found, damage = _read_all(folder)
    return _first_undamaged(reversed(found), damage)


def find_best_checkpoint(folder: Path) -> tuple[CheckpointManifest | None, list[CheckpointDamage]]:
    """The undamaged checkpoint with the best monitored value, and the damage of better ones."""
    found, damage = _read_all(folder)
    # Not each step once: a damaged manifest may name the step of a good one.
    return _first_undamaged(_rank(found), damage)


def rank_by_score(manifests: Iterable[CheckpointManifest]) -> list[CheckpointManifest]:
    """The checkpoints with a score, best first; of equal ones, the earlier step first.

    A step that was repeated after a resume counts once.
    """
    return _rank(newest_of_each_step(one for one in manifests if one.score is not None))


def _rank(manifests: Iterable[CheckpointManifest]) -> list[CheckpointManifest]:
    newest_first = sorted(manifests, key=lambda one: one.order, reverse=True)
    scored = [one for one in newest_first if one.score is not None]
    return sorted(scored, key=lambda one: (-(one.score or 0.0), one.step))


def newest_of_each_step(manifests: Iterable[CheckpointManifest]) -> list[CheckpointManifest]:
    """The checkpoints from oldest to newest, without those whose step was saved again later."""
    ordered = sorted(manifests, key=lambda manifest: manifest.order)
    newest = {one.step: one.path for one in ordered}
    return [one for one in ordered if newest[one.step] == one.path]


def _first_undamaged(
    candidates: Iterable[CheckpointManifest], damage: list[CheckpointDamage]
) -> tuple[CheckpointManifest | None, list[CheckpointDamage]]:
    for manifest in candidates:
        wrong = _check_files(manifest)
        if wrong is None:
            return manifest, damage
        damage.append(wrong)
    return None, damage


def _read_all(folder: Path) -> tuple[list[CheckpointManifest], list[CheckpointDamage]]:
    found: list[CheckpointManifest] = []
    damage: list[CheckpointDamage] = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if is_checkpoint(path):
            one = _read(path)
            if isinstance(one, CheckpointDamage):
                damage.append(one)
            else:
                found.append(one)
    return sorted(found, key=lambda manifest: manifest.order), damage


def is_checkpoint(path: Path) -> bool:
    """Whether a folder is a committed checkpoint that was not marked as damaged."""
    if path.name.startswith(".") or DAMAGED_SUFFIX in path.name or path.is_symlink():
        return False
    return any((path / name).exists() for name in (MANIFEST_FILE, STATE_FILE, TENSORS_FILE))


def _read(path: Path) -> CheckpointManifest | CheckpointDamage:
    try:
        text = json.loads(durable.read_bytes(path / MANIFEST_FILE))
        digest = text.pop("digest")
    except OSError as error:
        return CheckpointDamage(path, MANIFEST_FILE, _explain(error))
    except (ValueError, RecursionError, KeyError, AttributeError, TypeError):
        return CheckpointDamage(path, MANIFEST_FILE, "not the text of a manifest")
    if digest != _digest(text):
        return CheckpointDamage(path, MANIFEST_FILE, "its text was changed")
    if text.get("format") != FORMAT:
        version = text.get("format")
        return CheckpointDamage(
            path, MANIFEST_FILE, f"format {version!r}, and this version reads {FORMAT}"
        )
    return _parse(path, text)


def _parse(path: Path, text: Mapping[str, Any]) -> CheckpointManifest | CheckpointDamage:
    plain: Any = durable.decode_json(json.dumps(text).encode())
    if not _has_valid_types(plain):
        return CheckpointDamage(path, MANIFEST_FILE, "its values are invalid")
    try:
        files = {str(name): StoredFile(**stored) for name, stored in plain["files"].items()}
    except TypeError as error:
        return CheckpointDamage(path, MANIFEST_FILE, f"its list of files is invalid: {error}")
    facts = {name: plain[name] for name in MANIFEST_FIELDS if name in plain}
    return CheckpointManifest(path=path, files=files, format=plain["format"], **facts)


def _has_valid_types(plain: Mapping[str, Any]) -> bool:
    """Whether the values have the types that sorting and comparing need."""
    files, metrics = plain.get("files"), plain.get("metrics", {})
    if not isinstance(files, dict) or not isinstance(metrics, dict):
        return False
    counts = (plain.get(name, 0) for name in ("attempt", "step", "epoch", "samples"))
    return (
        all(isinstance(count, int) for count in counts)
        and all(isinstance(value, int | float) for value in metrics.values())
        and isinstance(plain.get("monitor", ""), str)
        and all("/" not in name and "\\" not in name for name in files)
        and all(isinstance(stored, dict) for stored in files.values())
    )


def _digest(text: object) -> str:
    plain = json.dumps(text, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(plain).hexdigest()


def _check_files(manifest: CheckpointManifest) -> CheckpointDamage | None:
    for name in (STATE_FILE, TENSORS_FILE):
        if name not in manifest.files:
            return CheckpointDamage(manifest.path, name, f"not named in {MANIFEST_FILE}")
    for name, stored in manifest.files.items():
        what = _check_file(manifest.path / name, stored)
        if what:
            return CheckpointDamage(manifest.path, name, what)
    return None


def _check_file(path: Path, stored: StoredFile) -> str:
    try:
        with durable.open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size != stored.size:
                return f"{size} bytes instead of {stored.size}"
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return _explain(error)
    return "" if digest == stored.sha256 else "its bytes were changed"


def _explain(error: OSError) -> str:
    return "missing" if isinstance(error, FileNotFoundError) else describe_os_error(error)
