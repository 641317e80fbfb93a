"""Adds experiments of the project to the queue: files by their ids, with some numbers changed.

No field of a request becomes a path, a module, a text of the config or a word of a command: an
experiment is found by the id of a file that the server listed, and only values of the config that
are numbers or booleans can be replaced, by numbers or booleans.
"""

from __future__ import annotations

import json
import math
import os
import re
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, final

from epochal import durable
from epochal.records.layout.process import utc_now
from epochal.records.layout.run_folders import make_epochal_dir
from epochal.records.metrics.points import read_json_lines
from epochal.web.api_error import ApiError, not_found
from epochal.web.run_record import make_file_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from epochal.errors import Problem
    from epochal.web.routes import ApiCall
    from epochal.web.site import Site

AUDIT_FILE = "launches.jsonl"
NAME = re.compile(r"[\w.+=@ -]{0,60}")
_SUFFIXES = (".yaml", ".yml", ".toml", ".json")
_SKIPPED = ("node_modules", "__pycache__", "site-packages", "tests")
_MAX_DEPTH = 3
_MAX_FILES = 500
_MAX_BYTES = 1 << 20
_SECTIONS = re.compile(r'^[ \t]*["\[]?(task|model|experiment)\b', re.MULTILINE)
_FIXED_SECTIONS = ("record", "notify", "imports")
"""Sections that decide where files are written and who is told; a request cannot change them."""


@final
@dataclass(frozen=True, slots=True)
class ConfigValue:
    """A number or a boolean of an expanded config."""

    key: str
    value: float | bool
    is_default: bool


@final
@dataclass(frozen=True, slots=True)
class LaunchCheck:
    """What a config says, and what is wrong with it."""

    problems: Sequence[Problem]
    values: Sequence[ConfigValue] = ()
    desc: str = ""


class Launcher(Protocol):
    """Checks config files, and adds them to the queue; the command line gives the real one."""

    def check(self, file: Path, overrides: Sequence[str], name: str) -> LaunchCheck:
        """Check a config without executing anything that it names."""

    def add(self, file: Path, overrides: Sequence[str], name: str) -> list[int]:
        """Add a checked config to the queue; gives the numbers of the jobs."""


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

    def get(self, file_id: str) -> Path:
        """One of them; ApiError if there is none."""
        path = self.files().get(file_id)
        if path is None:
            raise not_found()
        return path

    def launch(self, file_id: str, changes: Mapping[str, Any], name: str, key: str) -> list[int]:
        """Add an experiment to the queue once per ``key``; gives the numbers of the jobs."""
        path = self.get(file_id)
        with self._lock:  # the same request may arrive twice at once
            audit = make_epochal_dir(self.runs_dir) / AUDIT_FILE
            for line in read_json_lines(audit)[0]:
                if line.get("key") == key and isinstance(line.get("jobs"), list):
                    return [int(one) for one in line["jobs"]]
            overrides = self._to_overrides(path, changes, name)
            jobs = self.launcher.add(path, overrides, name)
            entry = {"time": utc_now(), "key": key, "jobs": jobs, "name": name}
            where = path.relative_to(self.project_dir).as_posix()
            durable.append_line(audit, {**entry, "experiment": where, "overrides": overrides})
        return jobs

    def check(self, file_id: str, changes: Mapping[str, Any], name: str) -> LaunchCheck:
        """What an experiment says with some values changed."""
        path = self.get(file_id)
        return self.launcher.check(path, self._to_overrides(path, changes, name), name)

    def _to_overrides(self, path: Path, changes: Mapping[str, Any], name: str) -> list[str]:
        """The changes as overrides; ApiError for keys that cannot be changed, and wrong values."""
        if not NAME.fullmatch(name):
            raise ApiError(422, "name: has characters that a name cannot have", "use letters")
        if not changes:
            return []
        values = {one.key: one.value for one in self.launcher.check(path, [], "").values}
        for key, value in changes.items():
            if key not in values:
                raise ApiError(422, f"{key[:80]!r}: cannot be changed here", "edit the file")
            if isinstance(values[key], bool) != isinstance(value, bool):
                raise ApiError(422, f"{key}: is {json.dumps(values[key])}", "give the same type")
            if not math.isfinite(value):
                raise ApiError(422, f"{key}: is not a finite number")
        return [f"{key}={json.dumps(value)}" for key, value in changes.items()]


def can_be_changed(key: str) -> bool:
    """Whether a request may change a number or boolean under this key."""
    return key.partition(".")[0] not in _FIXED_SECTIONS


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


def _launches(site: Site) -> Launches:
    if site.launches is None:
        raise not_found()
    return site.launches


def get_experiments(site: Site, call: ApiCall) -> dict[str, Any]:
    """The config files of the project."""
    launches = _launches(site)
    found = launches.files()
    return {
        "experiments": [
            {
                "id": one,
                "name": path.stem,
                "path": path.relative_to(launches.project_dir).as_posix(),
            }
            for one, path in found.items()
        ]
    }


def get_form(site: Site, call: ApiCall) -> dict[str, Any]:
    """The numbers and booleans of an experiment, and its mistakes."""
    return _to_json(_launches(site).check(call.path["id"], {}, ""))


def check_experiment(site: Site, call: ApiCall) -> dict[str, Any]:
    """The same with some values changed."""
    body = call.body
    return _to_json(_launches(site).check(call.path["id"], body["overrides"], body["name"]))


def launch_experiment(site: Site, call: ApiCall) -> dict[str, Any]:
    """Add an experiment to the queue."""
    body, launches = call.body, _launches(site)
    key = body["idempotency_key"]
    jobs = launches.launch(call.path["id"], body["overrides"], body["name"], key)
    return {"jobs": jobs}


def _to_json(found: LaunchCheck) -> dict[str, Any]:
    return {
        "desc": found.desc,
        "fields": [
            {
                "key": one.key,
                "value": one.value,
                "type": "bool" if isinstance(one.value, bool) else "number",
                "is_integer": isinstance(one.value, int) and not isinstance(one.value, bool),
                "default": one.is_default,
            }
            for one in found.values
        ],
        "problems": [
            {
                "key": one.key,
                "what": one.what,
                "hint": one.hint,
                "line": one.place.line if one.place else 0,
            }
            for one in found.problems
        ],
    }
