"""Where a run comes from: the copy of its code, its uncommitted changes, its parent run."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from epochal import durable
from epochal.launch.jobs.freeze_code import copy_snapshot
from epochal.launch.jobs.seal import seal_code
from epochal.records.code.code_manifest import DIFF_FILE, get_attempt_dir, read_manifest
from epochal.records.code.code_snapshot import CodeSnapshot, SnapshotResult
from epochal.records.code.file_selection import SnapshotLimits
from epochal.records.folder.folder import FOLDS_DIR, Parent, pop_parent_variable
from epochal.records.folder.machine import read_git_diff
from epochal.records.layout.run_folders import EPOCHAL_DIR, make_epochal_dir

if TYPE_CHECKING:
    from collections.abc import Callable

    from epochal.records import RecordOptions

logger = logging.getLogger(__name__)

_MAX_ABOVE = 8


@final
class CodeCopy:
    """The copy of a project's code in a record; an error in it never stops the run.

    The code of a ``frozen`` job is taken from the folder with its snapshot.
    """

    def __init__(
        self,
        options: RecordOptions,
        *,
        project: Path,
        run_dir: Path,
        attempt: int = 0,
        frozen: Path | None = None,
    ) -> None:
        self.is_wanted = options.code
        self._frozen = frozen
        self._has_seal = False
        self._options = options
        self._snapshot = CodeSnapshot(
            project=project.absolute(),
            run_dir=run_dir.absolute(),
            ignore=options.ignore,
            limits=SnapshotLimits(max_file_bytes=options.max_file_bytes),
            attempt=attempt,
        )
        self.digest = ""
        """The digest of the whole copy; empty without a copy."""

    @property
    def project(self) -> Path:
        """The project's folder."""
        return self._snapshot.project

    def save(self, *, version: str, is_dirty: bool) -> None:
        """Copy the code as it is now, and its uncommitted changes."""

        def take() -> SnapshotResult:
            if self._frozen is not None:
                return self._take_frozen(self._frozen)
            home = find_home(self._options, self._snapshot.run_dir)
            self._snapshot = replace(self._snapshot, home=home, version=version)
            taken = self._take()
            self._seal()
            if is_dirty:
                self._save_diff()
            return taken

        self._try(take)

    def _take_frozen(self, frozen: Path) -> SnapshotResult:
        # Each attempt of a job has the same code.
        manifest = read_manifest(self._snapshot.run_dir, self._snapshot.attempt)
        if manifest is not None:
            return SnapshotResult(manifest.digest)
        digest = copy_snapshot(frozen, self._snapshot.run_dir)
        self._seal()
        return SnapshotResult(digest)

    def _seal(self) -> None:
        """Seal the copy that this process wrote or compared, and no other."""
        seal_code(self._snapshot.run_dir, self._snapshot.attempt)
        self._has_seal = True

    def _take(self) -> SnapshotResult:
        try:
            return self._snapshot.take()
        except OSError:
            if self._snapshot.home is None:
                raise
        # The shared folder may belong to another user.
        self._snapshot = replace(self._snapshot, home=None)
        return self._snapshot.take()

    def add(self, imported: Mapping[str, str]) -> None:
        """Add files that were left out but imported."""

        def add_imported() -> SnapshotResult:
            taken = self._snapshot.add_imported(imported)
            if self._has_seal:
                self._seal()
            return taken

        self._try(add_imported)

    def _save_diff(self) -> None:
        folder = get_attempt_dir(self._snapshot.run_dir, self._snapshot.attempt)
        diff = read_git_diff(self._snapshot.project)
        if diff and folder.is_dir():
            durable.write_text(folder / DIFF_FILE, diff)

    def _try(self, action: Callable[[], SnapshotResult]) -> None:
        if not self.is_wanted:
            return
        try:
            taken = action()
        except Exception as error:  # the project's folder may contain anything
            self.is_wanted = False
            logger.warning("the record's copy of the code is not complete: %s", error)
            logger.debug("its traceback", exc_info=True)
        else:
            self.digest = taken.digest
            for note in taken.notes:
                logger.warning("%s", note)


def discard_code(run_dir: Path, attempt: int) -> None:
    """Remove the copy of an attempt that was refused, if it has its own."""
    folder = get_attempt_dir(run_dir, attempt)
    if attempt and folder.is_dir():
        with suppress(OSError):
            durable.remove_tree(folder, "refused")


def find_home(options: RecordOptions, run_dir: Path) -> Path | None:
    """The folder that all runs share; None if there is none, and each run has its own copies."""
    if not options.exact:
        try:
            return make_epochal_dir(options.log_dir.absolute())
        except OSError:
            return None
    above = list(run_dir.absolute().parents)[:_MAX_ABOVE]
    return next((place / EPOCHAL_DIR for place in above if (place / EPOCHAL_DIR).is_dir()), None)


def find_parent(run_dir: Path, facts: Mapping[str, Any]) -> Parent | None:
    """The parent of a new run: from the environment, or the run whose weights it starts with."""
    folder = run_dir.absolute()
    if folder.parent.name == FOLDS_DIR and (folder.parents[1] / "run.json").is_file():
        return Parent(folder.parents[1].name, "fold")
    parent = pop_parent_variable()
    if parent is not None:
        return parent
    trial = facts.get("trial")
    if trial is not None:
        return Parent(trial["sweep"], "trial")
    if facts.get("evaluates"):
        return Parent(Path(facts["evaluates"]).name, "watch")
    weights = facts.get("init_from")
    weights = weights.get("path") if isinstance(weights, Mapping) else weights
    path = Path(weights).absolute() if isinstance(weights, str) and weights else None
    places = () if path is None else (path, *list(path.parents)[:_MAX_ABOVE])
    found = next((place for place in places if (place / "run.json").is_file()), None)
    if found is None:
        return None
    runner = facts.get("runner")
    return Parent(found.name, runner if runner in ("test", "predict") else "weights")
