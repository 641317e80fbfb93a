"""Creates run folders, names their files, and passes the parent run to child processes."""

from __future__ import annotations

import errno
import glob
import os
import re
import unicodedata
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Annotated, Any, Literal, final, get_args

from epochal import durable
from epochal.config.bounds import AtLeast
from epochal.errors import RecordError
from epochal.records.layout.os_errors import raising_record_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CHECKPOINTS_DIR = "checkpoints"
FOLDS_DIR = "folds"
"""The subfolder of a cross validation with one run for each fold."""

_MAX_NAME_BYTES = 80
_OWNER_BITS = 0o7700
_PARTS = ("config", "logs", "media", CHECKPOINTS_DIR)
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class RecordOptions:
    """Where the record of a run is written."""

    log_dir: Path = Path("runs")
    """Folder of all runs; each creates ``<project>/<tag>/<time-id>`` in it."""

    exact: bool = False
    """Whether ``log_dir`` is the folder of this run itself; it must be new or empty."""

    log_file: str = "run.log"
    """Name of the text log inside the ``logs`` folder of the run."""

    subdirs: tuple[str, ...] = ()
    """More folders to create inside the folder of the run."""

    code: bool = True
    """Whether to store a copy of the project's code and of Epochal in the folder of the run."""

    ignore: tuple[str, ...] = ()
    """What the copy leaves out, in the syntax of ``.gitignore``; ``!name`` includes it."""

    max_file_bytes: Annotated[int, AtLeast(0)] = 1_048_576
    """Larger files are not copied, nor data of more than four times this size, unless imported."""


@final
@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one run."""

    path: Path
    log_file: str = "run.log"

    @property
    def id(self) -> str:
        """The name of the folder, by which commands find the run."""
        return self.path.name

    @property
    def config_dir(self) -> Path:
        """The config as written, expanded and observed."""
        return self.path / "config"

    @property
    def log_path(self) -> Path:
        """The text log of the main process, which is rank 0."""
        return self.log_path_of(0)

    def log_path_of(self, rank: int) -> Path:
        """The text log of one rank: ``run.log``, ``run.rank1.log``, ``run.rank2.log``, ..."""
        path = self.path / "logs" / self.log_file
        return path.with_name(f"{path.stem}.rank{rank}{path.suffix}") if rank else path

    def find_logs(self) -> dict[int, Path]:
        """The existing text logs, by rank."""
        path = self.log_path
        found = {0: path} if path.is_file() else {}
        for other in path.parent.glob(f"{glob.escape(path.stem)}.rank*{glob.escape(path.suffix)}"):
            rank = other.name[len(path.stem) + 5 : len(other.name) - len(path.suffix)]
            if rank.isdecimal() and int(rank):
                found[int(rank)] = other
        return dict(sorted(found.items()))

    @property
    def checkpoint_dir(self) -> Path:
        """Checkpoints and saved weights."""
        return self.path / CHECKPOINTS_DIR


@raising_record_errors()
def create_run_folder(
    options: RecordOptions,
    *,
    project: str,
    tag: str,
    base: Path = Path(),
    is_private: bool = True,
) -> RunFolder:
    """Create the folder of a new run.

    Args:
        options: The ``record`` section of the config.
        project: First level below ``log_dir``; any text, made safe for paths.
        tag: Second level below ``log_dir``; any text, made safe for paths.
        base: The folder of a relative ``log_dir``.
        is_private: Whether other users must not read it. A folder that exists stays as it is.
    """
    inner = [_require_inside(name, "record.subdirs") for name in options.subdirs]
    log_file = _require_inside(options.log_file, "record.log_file")
    root = base / options.log_dir
    with _explaining_unwritable(root):
        if options.exact:
            is_private = is_private and not root.exists()
            _require_empty_folder(root)
            folder = RunFolder(root, log_file)
        else:
            parent = root / slugify(project, default="default") / slugify(tag, default="untagged")
            folder = RunFolder(_make_unique(parent), log_file)
        if is_private:
            _make_private(folder.path)
        _make_parts(folder, [*inner, str(PurePosixPath("logs", log_file).parent)])
    return folder


def _make_private(path: Path) -> None:
    """Remove the permissions of other users, before anything is in the folder."""
    with suppress(OSError):  # a file system without permissions
        path.chmod(path.stat().st_mode & _OWNER_BITS)


def _make_parts(folder: RunFolder, more: list[str]) -> None:
    try:
        for name in dict.fromkeys((*_PARTS, *more)):
            durable.make_dir(folder.path / name, exist_ok=True)
    except OSError:  # leave no incomplete folder
        with suppress(OSError):
            durable.remove_tree(folder.path, "undone")
        raise


@contextmanager
def _explaining_unwritable(root: Path) -> Iterator[None]:
    """Explain an OSError that means a wrong ``log_dir``."""
    try:
        yield
    except OSError as error:
        if error.errno in _DISK_ERRORS:
            raise
        reason = os.strerror(error.errno).lower() if error.errno else str(error)
        raise RecordError(
            f"{root}: records of runs cannot be written there: {reason}\n"
            "  choose another folder: record.log_dir=PATH"
        ) from error


def slugify(text: str, *, default: str) -> str:
    """``text`` as one path component: letters and digits of any script, ``_ . + = @ -``."""
    safe = (
        char if unicodedata.category(char)[0] in "LNM" or char in "_.+=@-" else "-"
        for char in unicodedata.normalize("NFC", text)
    )
    words = re.split(r"-+|\.{2,}", "".join(safe))
    name = "-".join(word.strip(".") for word in words if word.strip("."))
    return name.encode()[:_MAX_NAME_BYTES].decode(errors="ignore").rstrip(".-") or default


def _make_unique(parent: Path) -> Path:
    while True:
        time_id = f"{datetime.now().astimezone():%Y%m%d-%H%M%S}-{os.urandom(2).hex()}"
        try:
            durable.make_dir(parent / time_id)
        except durable.WriteError as error:
            if error.errno != errno.EEXIST:
                raise
        else:
            return parent / time_id


def _require_empty_folder(path: Path) -> None:
    if not path.exists():
        durable.make_dir(path)
    elif not path.is_dir():
        raise RecordError(f"{path}: is a file, not a folder for a run\n  {_ELSEWHERE}")
    elif taken := sorted(entry.name for entry in path.iterdir()):
        raise RecordError(f"{path}: is not empty, it holds {taken[0]!r}\n  {_ELSEWHERE}")


_ELSEWHERE = "name a new folder with record.log_dir=PATH, or set record.exact=false"


def _require_inside(name: str, key: str) -> str:
    path = PurePosixPath(name.replace("\\", "/"))
    is_outside = path.is_absolute() or ".." in path.parts or PureWindowsPath(name).drive
    if is_outside or not path.name or "\0" in name:
        raise RecordError(
            f"{key}: must stay inside the folder of the run, got {name!r}\n"
            "  use a relative path without '..', such as 'plots'"
        )
    return str(path)


RUN_FILE_VARIABLE = "EPOCHAL_RUN_FILE"
"""The variable in which a supervisor names the file for the path of the run's folder."""

JOB_RUN_FILE_VARIABLE = "EPOCHAL_JOB_RUN_FILE"
"""The same for a pool, which leaves the mail about a failure to the run."""


def report_run_folder(folder: Path) -> bool:
    """Report the folder once; returns whether a supervisor asked for it."""
    # Child processes must not inherit the variables.
    targets = [os.environ.pop(name, "") for name in (RUN_FILE_VARIABLE, JOB_RUN_FILE_VARIABLE)]
    for target in filter(None, targets):
        with suppress(OSError):  # a restart then begins a new run
            durable.write_text(Path(target), str(folder.absolute()))
    return bool(targets[0])


ParentKind = Literal["retried", "rerun", "trial", "fold", "weights", "test", "predict", "watch"]

PARENT_VARIABLE = "EPOCHAL_PARENT"
"""The environment variable that gives the parent to a new process: ``kind:run``."""


@final
@dataclass(frozen=True, slots=True)
class Parent:
    """The relation of a run to another one.

    A resumed run continues in its own folder and has attempts instead.
    """

    run: str
    """The id of the other run."""

    kind: ParentKind
    """``retried``: it ended without a checkpoint, and this run starts again; ``rerun``: this run
    repeats it with changes; ``trial`` of a sweep; ``fold`` of a cross validation; this run started
    from its ``weights``, or is a ``test`` or a ``predict`` of them, or a ``watch`` of its
    checkpoints."""

    def to_json(self) -> dict[str, str]:
        """The entry in ``run.json``."""
        return asdict(self)

    def to_environment(self) -> dict[str, str]:
        """The environment variable for a child process."""
        return {PARENT_VARIABLE: f"{self.kind}:{self.run}"}


def pop_parent_variable() -> Parent | None:
    """The parent from the environment, which child processes do not inherit."""
    kind, _, run = os.environ.pop(PARENT_VARIABLE, "").partition(":")
    return _parse_parent(run, kind)


def read_parent(run: Mapping[str, Any]) -> Parent | None:
    """The parent in ``run.json``, if any."""
    entry = run.get("parent")
    return _parse_parent(entry.get("run"), entry.get("kind")) if isinstance(entry, dict) else None


def _parse_parent(run: object, kind: object) -> Parent | None:
    known = next((one for one in get_args(ParentKind) if one == kind), None)
    return Parent(run, known) if isinstance(run, str) and run and known else None
