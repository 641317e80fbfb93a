"""Checks experiments for the web page, builds them in other processes, and fills the queue."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

from epochal import durable
from epochal.check.export.launch_form import build_form, check_changes, find_written, read_text
from epochal.cli.build_check import BuildChecks, build_job
from epochal.errors import ConfigError, Problem, RecordError
from epochal.experiment.config.check_file import check_file
from epochal.experiment.config.choices import to_override
from epochal.experiment.config.freeze_jobs import freeze_configs
from epochal.experiment.resume.changes import find_code_changes
from epochal.launch.jobs.freeze_code import freeze_recorded_code, make_batch_dir
from epochal.launch.jobs.frozen_job import FrozenCode, FrozenJob
from epochal.launch.jobs.seal import is_code_sealed
from epochal.launch.pool.backlog import WaitingJob
from epochal.launch.pool.run_jobs import remove_batch
from epochal.launch.queue.queue import Queue
from epochal.launch.queue.worker import can_resume
from epochal.records.folder.provenance import get_newest_origins
from epochal.records.folder.reader import find_expanded_config, read_folder
from epochal.records.layout.coerce import as_mapping, as_text
from epochal.records.layout.lease import LEASE_FILE, is_owner_alive
from epochal.records.secrets import REDACTED, redact_config
from epochal.registry.project import find_project
from epochal.web.site.launches import BuildFacts, LaunchCheck, Launcher

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from epochal.check.export.launch_form import LaunchForm
    from epochal.config.node import Node
    from epochal.experiment.config.check_file import FileCheck
    from epochal.experiment.config.choices import Choices
    from epochal.records.folder.reader import RunRecord
    from epochal.registry.project import Project
    from epochal.web.site.launches import LaunchRequest

COMMAND = "epochal serve"
"""The command that records of such runs show."""


@final
@dataclass(frozen=True)
class _Source:
    """A config file, or that of a run, with the changes that it always gets."""

    path: Path
    overrides: tuple[str, ...] = ()
    choices: Choices | None = None
    parent: str = ""
    defaults: frozenset[str] = frozenset()
    """Keys that a recorded config contains although no user set them."""

    changed_code: tuple[str, ...] = ()
    """Files that changed after the run."""


@final
@dataclass(frozen=True)
class _Accepted:
    """A request that the form of a config accepted."""

    found: FileCheck
    overrides: tuple[str, ...]
    choices: Choices
    parent: str


@final
class QueueLauncher(Launcher):
    """Adds experiments and runs to the queue of a folder of runs."""

    def __init__(self, runs_dir: Path) -> None:
        self._queue = Queue(runs_dir)
        self._builds = BuildChecks()

    @override
    def check(self, source: Path, request: LaunchRequest) -> LaunchCheck:
        found = self._find_source(source)
        check = self._accept(found, request)[0]
        return replace(check, changed_code=found.changed_code)

    def _accept(
        self, source: _Source, request: LaunchRequest
    ) -> tuple[LaunchCheck, _Accepted | None]:
        """What a request means; nothing if there are mistakes."""
        choices: Choices = {**(source.choices or {})}
        if request.name.strip():
            choices["name"] = request.name.strip()
        found = check_file(source.path, source.overrides, choices)
        if not found.checked:
            return LaunchCheck(found.problems), None
        form = _build_form(found, source)
        overrides, written = source.overrides, None
        if request.overrides or request.text is not None:
            changes: Any = request.overrides
            problems: Sequence[Problem] = ()
            if request.text is not None:
                changes, written, problems = read_text(request.text, form)
            values, wrong = check_changes(form, changes, written)
            if problems or wrong:
                return LaunchCheck([*problems, *wrong], form, *_read_head(found)), None
            overrides += tuple(to_override(key, value) for key, value in values.items())
            found = check_file(source.path, overrides, choices, like=found.checked[0].registry)
            form = _build_form(found, source) if found.checked else form
        check = LaunchCheck(_relocate(found.problems, written), form, *_read_head(found))
        if found.problems:
            return check, None
        return check, _Accepted(found, overrides, choices, source.parent)

    def _find_source(self, path: Path) -> _Source:
        """The config of a file, or of a run; RecordError if the run cannot be repeated."""
        if path.is_file():
            return _Source(path)
        record = read_folder(path)
        config = find_expanded_config(path)
        if config is None:
            raise RecordError("the run has no config that could run again")
        project = _find_project_of(record)
        overrides = list(record.attempts[-1].overrides if record.attempts else ())
        where = as_mapping(record.expanded.get("record"))
        if where.get("exact"):
            overrides.append("record.exact=false")
        if Path(as_text(where.get("log_dir"))).resolve() != self._queue.runs_dir.resolve():
            overrides.append(to_override("record.log_dir", str(self._queue.runs_dir)))
        own: Choices = {"user_dir": find_project(Path.cwd()).dir, "name": record.summary.tag}
        origins = get_newest_origins(record.provenance)
        defaults = {key for key, one in origins.items() if one.get("layer") == "default"}
        changed = _find_changed_code(record, project)
        return _Source(config, tuple(overrides), own, path.name, frozenset(defaults), changed)

    @override
    def build(self, source: Path, request: LaunchRequest) -> BuildFacts | None:
        question = json.dumps([str(source), request.facts], sort_keys=True)
        return self._builds.ask(question, lambda: self._build(source, request))

    def _build(self, source: Path, request: LaunchRequest) -> BuildFacts:
        try:
            check, accepted = self._accept(self._find_source(source), request)
            if accepted is None:
                return BuildFacts(problems=tuple(check.problems))
            jobs = self._freeze(accepted)
        except ConfigError as error:
            return BuildFacts(problems=error.problems)
        try:
            return build_job(jobs[0])
        finally:
            remove_batch(jobs[0].file.parent)

    @override
    def add(
        self, source: Path, request: LaunchRequest, on_frozen: Callable[[str], None]
    ) -> list[int]:
        check, accepted = self._accept(self._find_source(source), request)
        if accepted is None:
            raise ConfigError(*check.problems)
        return self._add(self._freeze(accepted), on_frozen)

    def _freeze(self, accepted: _Accepted) -> list[WaitingJob]:
        jobs = freeze_configs(
            accepted.found.checked,
            overrides=accepted.overrides,
            choices=accepted.choices,
            command=COMMAND,
            home=self._queue.runs_dir,
        )
        if not accepted.parent:
            return jobs
        marked = [replace(one, job=replace(one.job, parent=accepted.parent)) for one in jobs]
        for one in marked:
            one.job.write(one.file)
        return marked

    def _add(
        self,
        jobs: Sequence[WaitingJob],
        on_frozen: Callable[[str], None],
        run_dir: Path | None = None,
    ) -> list[int]:
        batch = jobs[0].file.parent
        try:
            on_frozen(batch.name)
            return [job.id for job in self._queue.add(jobs, run_dir=run_dir)]
        except BaseException:
            remove_batch(batch)
            raise

    @override
    def resume(self, run_dir: Path, on_frozen: Callable[[str], None]) -> list[int]:
        run_dir = run_dir.absolute()
        for job in self._queue.list_jobs("waiting", "running"):
            if job.run_dir == run_dir:  # requested twice
                return [job.id]
        record = read_folder(run_dir)
        if is_owner_alive(run_dir, durable.find_object(run_dir / LEASE_FILE)):
            raise RecordError("the run is still running, so there is nothing to resume")
        if not can_resume(record):
            raise RecordError(f"the run cannot be resumed: it is {record.summary.status}")
        batch = make_batch_dir(self._queue.runs_dir)
        try:
            code = _freeze_code_of(record, batch)
        except BaseException:
            remove_batch(batch)
            raise
        frozen = FrozenJob(
            name=record.summary.tag,
            source={},
            code=code,
            log_dir=self._queue.runs_dir,
            cwd=Path.cwd(),
            python=sys.executable,
            environment=_environment(),
            is_resume=True,
        )
        waiting = WaitingJob(key=1, job=frozen, file=batch / "1.json")
        frozen.write(waiting.file)
        return self._add([waiting], on_frozen, run_dir)


def _build_form(found: FileCheck, source: _Source) -> LaunchForm:
    checked = found.checked[0]
    root = _prepare(redact_config(checked.report.expanded), source.defaults)
    return build_form(root, checked.registry)


def _prepare(node: Node, defaults: frozenset[str], path: str = "") -> Node:
    """The tree without redacted values, so that no field has them, and with known defaults."""
    if node.layer == "file" and path in defaults:
        node = replace(node, layer="default")
    if not node.is_mapping:
        return node
    kept = {
        key: _prepare(child, defaults, f"{path}.{key}" if path else key)
        for key, child in node.mapping.items()
        if not (isinstance(child.value, str) and REDACTED in child.value)
    }
    return node.with_entries(kept)


def _find_project_of(record: RunRecord) -> Project:
    """The project of a run, if it is this one; RecordError says what to do otherwise."""
    project, home = find_project(Path.cwd()), record.run.get("project_dir")
    if not isinstance(home, str) or not Path(home).resolve().is_relative_to(project.dir.resolve()):
        raise RecordError(
            "the run is not of this project, so its code is not executed from the page\n"
            f"  on the command line: epochal resume {record.path.name} --trust"
        )
    return replace(project, dir=Path(home))


def _find_changed_code(record: RunRecord, project: Project) -> tuple[str, ...]:
    """The files that a run imported and that were changed or removed since."""
    attempts = [one for one in record.attempts if one.code]
    changes = find_code_changes(attempts[-1].code, project) if attempts else []
    return tuple(one.key.removeprefix("code ") for one in changes)


def _freeze_code_of(record: RunRecord, batch: Path) -> FrozenCode:
    """The code that resumes a run: that of the project, or if it has changed, the run's own copy.

    A copy is executed only if a run of this user wrote it, and it is unchanged since.
    """
    project = _find_project_of(record)
    changed = _find_changed_code(record, project)
    if not changed:
        return FrozenCode(project=find_project(Path.cwd()), command=COMMAND)
    attempt, run_id = record.summary.attempt, record.path.name
    what = f"the code has changed since this run: {', '.join(changed[:3])}"
    hint = f"with the current code: epochal resume {run_id} --allow-changed"
    if not is_code_sealed(record.path, attempt):
        raise RecordError(f"{what}; its own copy is not signed by you\n  {hint}")
    try:
        code = freeze_recorded_code(record.path, project, batch, attempt=attempt, command=COMMAND)
    except RecordError as error:
        raise RecordError(f"{what}; its own copy cannot be used\n  {hint}") from error
    missing = _find_changed_code(record, code.project)
    if missing:
        raise RecordError(f"{what}; its own copy lacks {', '.join(missing[:3])}\n  {hint}")
    return code


def _relocate(problems: Sequence[Problem], written: Node | None) -> list[Problem]:
    """The problems, with their places in a text if it caused them."""
    if written is None:
        return list(problems)
    return [replace(one, place=find_written(written, one.key) or one.place) for one in problems]


def _read_head(found: FileCheck) -> tuple[str, str]:
    """Description and tag of the config."""
    values = found.checked[0].report.expanded.mapping if found.checked else {}
    desc, tag = (values[key].value if key in values else "" for key in ("desc", "tag"))
    return desc if isinstance(desc, str) else "", tag if isinstance(tag, str) else ""


def _environment() -> dict[str, str]:
    names = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")
    return {name: os.environ[name] for name in names if os.environ.get(name)}
