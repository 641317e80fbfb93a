"""A frozen job: all that one run needs to start later, in one private file."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from epochal.config import FrozenSource
from epochal.errors import RecordError
from epochal.launch.jobs.private_files import write_private
from epochal.registry.project import Project

if TYPE_CHECKING:
    from collections.abc import Mapping

JOB_FORMAT = 1


@final
@dataclass(frozen=True, kw_only=True)
class FrozenCode:
    """The code of a project as it was when a job was submitted."""

    project: Project
    """The project; its ``copy`` has the frozen files, if they could be copied."""

    snapshot: Path | None = None
    """The folder with the snapshot that each record gets; None without one."""

    git: Mapping[str, Any] | None = None
    """Commit, branch, remote, and whether tracked files differed from the commit."""

    command: str = ""
    """The command that submitted the job."""


@final
@dataclass(frozen=True, kw_only=True)
class FrozenJob:
    """One run of one config, frozen."""

    name: str
    """The tag of the run."""

    source: FrozenSource | Mapping[str, Any]
    """The config file with its bases, or the values of a config from Python."""

    overrides: tuple[str, ...] = ()
    """As typed."""

    choices: Mapping[str, Any] = field(default_factory=dict)
    """Choices for the run, such as ``variant`` and ``epochs``."""

    code: FrozenCode
    log_dir: Path
    """The folder of all runs."""

    cwd: Path
    """The folder that relative paths of the config start from."""

    python: str
    """The Python that runs it."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that decide what is imported and computed."""

    launch: Mapping[str, Any] = field(default_factory=dict)
    """The section ``launch`` of its config: what it needs on a cluster."""

    parent: str = ""
    """The id of the run that this one repeats with changes."""

    is_resume: bool = False
    """Whether it resumes a run with that run's own config; then ``source`` is empty."""

    has_test: bool = False
    """Whether the best weights are evaluated on the test data after the training."""

    @property
    def num_processes(self) -> int:
        """How many processes share each batch of the run."""
        return int(self.choices.get("nproc") or 1)

    @property
    def title(self) -> str:
        """The name if one was chosen, with the config file and the variant as typed."""
        if self.is_resume or self.parent:
            return f"{self.name} ({'resumed' if self.is_resume else 'rerun'})"
        file = self.source.path.name if isinstance(self.source, FrozenSource) else self.name
        name, variant = self.choices.get("name"), self.choices.get("variant")
        words = [word for word in (name, file, variant) if word]
        first, *others = dict.fromkeys(words)
        return f"{first} ({', '.join(others)})" if others else first

    def write(self, path: Path) -> None:
        """Write it to a file that only this user can read: overrides may contain secrets."""
        source: Mapping[str, Any] = {"values": self.source}
        if isinstance(self.source, FrozenSource):
            source = {"path": str(self.source.path), "texts": dict(self.source.texts)}
        project = self.code.project
        value = {
            "format": JOB_FORMAT,
            "name": self.name,
            "source": source,
            "overrides": self.overrides,
            "choices": self.choices,
            "project": {
                "dir": str(project.dir),
                "roots": project.roots,
                "name": project.name,
                "runs_dir": str(project.runs_dir),
                "has_private_runs": project.has_private_runs,
                "copy": None if project.copy is None else str(project.copy),
            },
            "snapshot": None if self.code.snapshot is None else str(self.code.snapshot),
            "git": self.code.git,
            "command": self.code.command,
            "log_dir": str(self.log_dir),
            "cwd": str(self.cwd),
            "python": self.python,
            "environment": self.environment,
            "launch": self.launch,
            "parent": self.parent,
            "is_resume": self.is_resume,
            "has_test": self.has_test,
        }
        text = json.dumps(value, indent=1, ensure_ascii=False)
        # Escapes of JSON would join two halves of a surrogate pair into one character.
        write_private(path, text.encode("utf-8", "surrogatepass"))


def read_job(path: Path) -> FrozenJob:
    """The job in a file.

    Raises:
        RecordError: The file is missing or damaged, or comes from a later version.
    """
    try:
        value = json.loads(path.read_bytes().decode("utf-8", "surrogatepass"))
        if value["format"] > JOB_FORMAT:
            raise RecordError(
                f"{path}: was written by a later version of Epochal\n  update Epochal first"
            )
        return _parse(value)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(
            f"{path}: is no frozen job: {error}\n  submit the experiment again"
        ) from error


def _parse(value: dict[str, Any]) -> FrozenJob:
    source, project = value["source"], value["project"]
    return FrozenJob(
        name=value["name"],
        source=(
            FrozenSource(Path(source["path"]), source["texts"], value["cwd"])
            if "path" in source
            else source["values"]
        ),
        overrides=tuple(value["overrides"]),
        choices=value["choices"],
        code=FrozenCode(
            project=Project(
                dir=Path(project["dir"]),
                roots=tuple(project["roots"]),
                name=project["name"],
                runs_dir=Path(project["runs_dir"]),
                has_private_runs=bool(project["has_private_runs"]),
                copy=_path(project["copy"]),
            ),
            snapshot=_path(value["snapshot"]),
            git=value["git"],
            command=value["command"],
        ),
        log_dir=Path(value["log_dir"]),
        cwd=Path(value["cwd"]),
        python=value["python"],
        environment=value["environment"],
        launch=value.get("launch", {}),  # earlier jobs have none
        parent=value.get("parent", ""),
        is_resume=value.get("is_resume", False),
        has_test=value.get("has_test", False),
    )


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)
