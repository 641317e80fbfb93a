"""The experiments of the project, and the record of what was launched from the page.

No field of a request becomes a path, a module or a word of a command: an experiment is found by
the id of a file that the server listed, a run by its id, and changes are values of the fields of
its form.
"""

from __future__ import annotations

import gc
import os
import re
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, final

from epochal import durable
from epochal.check.export.form_json import form_to_json
from epochal.check.export.launch_form import TEXT_NAME
from epochal.errors import EpochalError
from epochal.launch.queue.queue import Queue
from epochal.records.layout.process import utc_now
from epochal.records.layout.run_folders import make_epochal_dir
from epochal.records.metrics.points import read_json_lines
from epochal.web.site.api_error import ApiError, not_found
from epochal.web.site.file_id import make_file_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from epochal.check.export.launch_form import LaunchForm
    from epochal.errors import Problem

AUDIT_FILE = "launches.jsonl"
_MAX_NAME = 60
_NOT_IN_NAMES = re.compile(r"[^\w.+=@ -]")
_SUFFIXES = (".yaml", ".yml", ".toml", ".json")
_SKIPPED = ("node_modules", "__pycache__", "site-packages", "tests")
_MAX_DEPTH = 3
_MAX_FILES = 500
_MAX_BYTES = 1 << 20
_SECTIONS = re.compile(r'^[ \t{]*["\[]?(task|model|experiment|\$BASE)\b', re.MULTILINE)


@final
@dataclass(frozen=True, kw_only=True)
class LaunchRequest:
    """The changes of a user in a form: values by key, or the text of all shown keys."""

    overrides: Mapping[str, Any] = field(default_factory=dict)
    text: str | None = None
    name: str = ""

    @property
    def facts(self) -> dict[str, Any]:
        """What the record of launches notes."""
        changes = {"overrides": dict(self.overrides)} if self.text is None else {"text": self.text}
        return {"name": self.name, **changes}


@final
@dataclass(frozen=True)
class LaunchCheck:
    """What a config says, and what is wrong with it."""

    problems: Sequence[Problem]
    form: LaunchForm | None = None
    desc: str = ""
    tag: str = ""
    """The name of the run, unless the request has another one."""

    changed_code: tuple[str, ...] = ()
    """Files of the project that changed since the run that is run again."""


@final
@dataclass(frozen=True, kw_only=True)
class BuildFacts:
    """What only a built model shows."""

    parameters: int | None = None
    memory_bytes: int | None = None
    """Of weights, gradients and the state of the optimizer."""

    note: str = ""
    """Why something is unknown, or what the numbers leave out."""

    problems: tuple[Problem, ...] = ()


class Launcher(Protocol):
    """Checks experiments, and adds them to the queue; the command line gives the real one.

    ``source`` is a config file, or the folder of a run, which is run again.
    """

    def check(self, source: Path, request: LaunchRequest) -> LaunchCheck:
        """Check a config without executing anything that it names."""

    def build(self, source: Path, request: LaunchRequest) -> BuildFacts | None:
        """Build a checked config in another process; None while that takes longer."""

    def add(
        self, source: Path, request: LaunchRequest, on_frozen: Callable[[str], None]
    ) -> list[int]:
        """Add a checked config to the queue; returns the numbers of the jobs.

        ``on_frozen`` receives the name of their folder before they are added.
        """

    def resume(self, run_dir: Path, on_frozen: Callable[[str], None]) -> list[int]:
        """Add a job that resumes a run."""


@final
class Launches:
    """The experiments below a folder, and the record of what was launched.

    Args:
        project_dir: The folder of the project.
        runs_dir: The folder of all runs, which has the record.
        launcher: Checks and adds.
    """

    def __init__(self, project_dir: Path, runs_dir: Path, launcher: Launcher) -> None:
        self.project_dir, self.runs_dir, self.launcher = project_dir, runs_dir, launcher
        self._lock = threading.Lock()

    def files(self) -> dict[str, Path]:
        """The config files of the project, by id."""
        found: dict[str, Path] = {}
        for path in _iter_configs(self.project_dir, self.runs_dir.resolve()):
            found[make_file_id(path.relative_to(self.project_dir).as_posix())] = path
            if len(found) >= _MAX_FILES:
                break
        return found

    def warm_up(self) -> None:
        """Parse the code that forms are made from: the first form would take a second longer."""
        with suppress(EpochalError, OSError):
            for path in islice(self.files().values(), 1):
                self.launcher.check(path, LaunchRequest())
        gc.collect()
        gc.freeze()  # parsed code is many small objects, and each collection would visit them

    def get(self, file_id: str) -> Path:
        """One of them; ApiError if there is none."""
        path = self.files().get(file_id)
        if path is None:
            raise not_found()
        return path

    def add(
        self,
        action: str,
        what: str,
        key: str,
        facts: Mapping[str, Any],
        add: Callable[[Callable[[str], None]], list[int]],
    ) -> list[int]:
        """Add jobs once per ``key``, and note it; returns their numbers.

        The note is written before and after, so that a server that was killed in between knows
        whether the jobs exist.
        """
        with self._lock:  # the same request may arrive twice at once
            audit = make_epochal_dir(self.runs_dir) / AUDIT_FILE
            for line in read_json_lines(audit)[0]:
                if key and line.get("key") == key:
                    jobs = line.get("jobs") or self._find_jobs(line.get("batch"))
                    if isinstance(jobs, list) and jobs:
                        return [int(one) for one in jobs]
            entry = {"time": utc_now(), "key": key, "action": action, "what": what, **facts}

            def note(batch: str) -> None:
                durable.append_line(audit, {**entry, "batch": batch})

            jobs = add(note)
            durable.append_line(audit, {**entry, "jobs": jobs})
        return jobs

    def _find_jobs(self, batch: object) -> list[int]:
        """The jobs of a folder of frozen jobs."""
        return [job.id for job in Queue(self.runs_dir).list_jobs() if job.file.parent.name == batch]

    def check(
        self, source: Path, request: LaunchRequest, *, should_build: bool = False
    ) -> dict[str, Any]:
        """The form of an experiment with changes, its mistakes, and what a build shows."""
        check_name(request.name)
        found = self.launcher.check(source, request)
        answer = {
            "desc": found.desc,
            "tag": found.tag,
            "fields": [] if found.form is None else form_to_json(found.form),
            "text": "" if found.form is None else found.form.to_text(),
            "problems": _problems(found.problems, is_text=request.text is not None),
            "changed_code": list(found.changed_code),
        }
        if not should_build or found.problems:
            return answer
        built = self.launcher.build(source, request)
        facts = built or BuildFacts()
        return answer | {
            "parameters": facts.parameters,
            "memory_bytes": facts.memory_bytes,
            "note": facts.note,
            "is_building": built is None,
            "problems": _problems(facts.problems, is_text=request.text is not None),
        }


def check_name(name: str) -> None:
    """Refuse a name that could not be the name of a run."""
    if len(name) > _MAX_NAME:
        raise ApiError(422, f"name: has more than {_MAX_NAME} characters", "choose a shorter one")
    if found := _NOT_IN_NAMES.search(name):
        hint = "use letters, digits, spaces and . + = @ _ -"
        raise ApiError(422, f"name: cannot contain {found[0]!r}", hint)


def _iter_configs(root: Path, runs_dir: Path) -> Iterator[Path]:
    """Files below a folder that look like experiments; links are not followed."""
    for folder, folders, names in os.walk(root):
        depth = len(Path(folder).relative_to(root).parts)
        kept = [
            name
            for name in sorted(folders)
            if not name.startswith((".", "_"))
            and name not in _SKIPPED
            and Path(folder, name).resolve() != runs_dir
        ]
        folders[:] = kept if depth < _MAX_DEPTH else []
        for name in sorted(names):
            path = Path(folder, name)
            if path.suffix in _SUFFIXES and not name.startswith(".") and _is_experiment(path):
                yield path


def _is_experiment(path: Path) -> bool:
    try:
        text = durable.read_bytes(path, max_bytes=_MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return False
    return bool(_SECTIONS.search(text))


def _problems(problems: Sequence[Problem], *, is_text: bool) -> list[dict[str, Any]]:
    """The problems; with ``is_text`` only lines of the posted text count."""
    return [
        {
            "key": one.key,
            "what": one.what,
            "hint": one.hint,
            "line": one.place.line
            if one.place is not None and (not is_text or one.place.name == TEXT_NAME)
            else 0,
        }
        for one in problems
    ]
