"""Freezes the code of a project: a snapshot for the records, and a folder to import from."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, final

from epochal import durable
from epochal.errors import RecordError
from epochal.launch.jobs.frozen_job import FrozenCode
from epochal.launch.jobs.private_files import make_private_dir
from epochal.records.code.code_manifest import CODE_DIR, DIFF_FILE, RESTORED_FILE, read_manifest
from epochal.records.code.code_snapshot import CodeSnapshot
from epochal.records.code.file_selection import SnapshotLimits
from epochal.records.code.framework import digest_package, get_package_dir, unpack_framework
from epochal.records.code.restore import restore_code
from epochal.records.folder.machine import describe_repository, own_version, read_git_diff
from epochal.records.layout.run_folders import make_epochal_dir

if TYPE_CHECKING:
    from collections.abc import Sequence

    from epochal.records.code.restore import RestoreResult
    from epochal.registry.project import Project

JOBS_DIR = "jobs"
"""The folder of frozen jobs below ``.epochal``."""

_PROJECT_DIR = "project"
_UNLINKED = (".git", "__pycache__")


@final
@dataclass(frozen=True, kw_only=True)
class CodeOptions:
    """What a snapshot leaves out: the keys ``ignore`` and ``max_file_bytes`` of ``record``."""

    ignore: Sequence[str] = ()
    max_file_bytes: int = 1_048_576


def make_batch_dir(log_dir: Path) -> Path:
    """A new private folder for jobs that are frozen together, below the folder of all runs."""
    jobs = make_private_dir(make_epochal_dir(log_dir.absolute()) / JOBS_DIR)
    name = f"{datetime.now().astimezone():%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
    return make_private_dir(jobs / name)


def freeze_code(
    project: Project, batch: Path, options: CodeOptions, *, log_dir: Path, command: str
) -> FrozenCode:
    """Copy the code of a project into ``batch``, and note the state of its repository.

    Files that the snapshot leaves out, such as data, are linked, not copied: the code still
    finds them, but they are not frozen. A folder that is no project, such as a home, is not
    copied at all.
    """
    project = replace(project, dir=project.dir.absolute())
    number = 1 + sum(1 for _ in batch.glob(f"{_PROJECT_DIR}-*"))
    folder = batch / f"{_PROJECT_DIR}-{number}"
    folder.mkdir()
    git = describe_repository(project.dir)
    frozen = FrozenCode(project=project, git=git, command=command)
    CodeSnapshot(
        project=project.dir,
        run_dir=folder,
        home=make_epochal_dir(log_dir.absolute()),
        ignore=options.ignore,
        limits=SnapshotLimits(max_file_bytes=options.max_file_bytes),
        version=own_version(),
    ).take()
    if git and git.get("dirty") and (diff := read_git_diff(project.dir)):
        durable.write_text(folder / CODE_DIR / DIFF_FILE, diff)
    manifest = read_manifest(folder)
    if manifest is None or any(other.path == "." for other in manifest.others):
        return replace(frozen, snapshot=folder)
    copy = folder / _PROJECT_DIR
    _link_others(restore_code(folder, copy, is_partial=True), project.dir)
    return replace(frozen, project=replace(project, copy=copy), snapshot=folder)


def freeze_recorded_code(
    run_dir: Path, project: Project, batch: Path, *, attempt: int, command: str
) -> FrozenCode:
    """The code of a run as its record has it, unpacked into ``batch`` for a job that resumes it.

    What the record left out is linked to the files of the project, as by ``freeze_code``.

    Raises:
        RecordError: The record has no copy of the code, or it is not as recorded.
    """
    folder = batch / f"{_PROJECT_DIR}-1"
    folder.mkdir()
    done = restore_code(run_dir, folder / _PROJECT_DIR, attempt=attempt)
    for path in (done.config, done.dir / RESTORED_FILE):
        if path is not None:
            path.unlink(missing_ok=True)
    _link_others(done, project.dir.absolute())
    # The snapshot is empty: the record has its copy already, and the running Epochal resumes it.
    frozen = replace(project, dir=project.dir.absolute(), copy=done.dir)
    return FrozenCode(project=frozen, snapshot=folder, command=command)


def _link_others(done: RestoreResult, project_dir: Path) -> None:
    """Replace what a copy does not have, or not as it was, by links to the project."""
    unfaithful = [*done.lost, *done.altered]
    for path in unfaithful:  # a copy without its secrets would not work
        with suppress(OSError):
            (done.dir / path).unlink()
    for path in (*unfaithful, *(other.path for other in done.manifest.others)):
        _link(project_dir / path, done.dir / path)


def _link(target: Path, place: Path) -> None:
    if any(part in _UNLINKED for part in place.parts) or place.suffix == ".pyc":
        return
    if not os.path.lexists(target) or os.path.lexists(place):
        return
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)


def copy_snapshot(snapshot: Path, run_dir: Path) -> str:
    """Put a frozen snapshot into the record of a run; returns the digest of the code."""
    source, target = snapshot / CODE_DIR, run_dir / CODE_DIR
    for folder, _, names in os.walk(source):
        inner = target / Path(folder).relative_to(source)
        inner.mkdir(parents=True, exist_ok=True)
        for name in names:
            durable.link_or_copy(Path(folder) / name, inner / name)
    manifest = read_manifest(run_dir)
    return "" if manifest is None else manifest.digest


def find_framework(snapshot: Path | None) -> Path | None:
    """The folder with the Epochal of a frozen job; None if the running one is the same."""
    manifest = None if snapshot is None else read_manifest(snapshot)
    own = None if manifest is None else manifest.framework
    if snapshot is None or own is None or not own.digest:
        return None
    if own.digest == digest_package(get_package_dir()):
        return None
    folder = snapshot / "epochal"
    if not folder.is_dir():
        try:
            with durable.staged_dir(folder, "epochal") as staged:
                unpack_framework(snapshot / CODE_DIR / own.archive, staged.path, own.digest)
        except (OSError, ValueError) as error:
            raise RecordError(
                f"{snapshot}: the copy of Epochal is damaged: {error}\n  submit the job again"
            ) from error
    return folder
