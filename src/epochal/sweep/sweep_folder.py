"""The folder of a sweep: what is searched, with the frozen code, and one job per trial."""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from epochal import durable
from epochal.config import load
from epochal.errors import ConfigError, RecordError, suggest
from epochal.experiment.config.check_file import check_config
from epochal.experiment.config.choices import to_overrides
from epochal.launch.jobs.frozen_job import FrozenJob, read_job
from epochal.launch.jobs.private_files import make_private_dir
from epochal.launch.pool.backlog import WaitingJob
from epochal.records.layout.process import describe_process, is_owner_gone, utc_now
from epochal.records.layout.sweep_folders import SWEEP_FILE, get_sweeps_dir, is_sweep_folder
from epochal.records.mail.outbox import read_specs
from epochal.records.mail.signing import (
    SIGNATURE,
    KeyUnusableError,
    has_signature,
    is_signed,
    sign,
    write_signed,
)
from epochal.records.secrets import redact
from epochal.sweep.check_space import check_sweep
from epochal.sweep.settings import MAX_REPEATS, SweepSettings, read_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from epochal.experiment.config.check_file import CheckedConfig
    from epochal.experiment.config.choices import Choices, TrialFacts

_SUMMARY_FILE = "summary.json"
_BASE_FILE = "base.json"
_LOCK_FILE = "lock"
_JOBS_DIR = "jobs"
_CODE_DIR = ".code"
"""Hidden, so that a search for runs skips it."""


@final
@dataclass(frozen=True)
class SweepFolder:
    """``sweeps/ID`` beside the runs: ``sweep.json``, the frozen experiment, and the trials' jobs.

    The frozen code is in it as well: every sweep can be given more trials, until its folder is
    deleted. A trial is an ordinary run elsewhere, which names its sweep and its number. What came
    out of it is read from its record alone.
    """

    path: Path

    @property
    def id(self) -> str:
        """The name of the sweep, by which its trials know it."""
        return self.path.name

    def read_facts(self) -> dict[str, Any]:
        """``sweep.json``: when it began, the command, and changes since."""
        return durable.find_object(self.path / SWEEP_FILE)

    def read_base(self) -> FrozenJob:
        """The experiment without the values of a trial."""
        return read_job(self.path / _BASE_FILE)

    def read_settings(self) -> SweepSettings:
        """What is searched now: the section of the config, and the changes made since."""
        checked = self._check(self._read_changes())
        return read_settings(checked.config.sweep, checked.report.expanded)

    def check_changes(self, overrides: Sequence[str]) -> SweepSettings:
        """What would be searched with further changes, such as ``sweep.trials=40``.

        Raises:
            ConfigError: The changes are mistaken.
        """
        checked = self._check(_add_changes(self._read_changes(), overrides))
        base = self.read_base()
        allow_python = base.choices.get("allow_python") is True
        settings, problems = check_sweep(checked, source=base.source, allow_python=allow_python)
        if problems or settings is None:
            raise ConfigError(*problems)
        return settings

    def _read_changes(self) -> list[str]:
        return self.read_facts().get("changes") or []

    def read_notify(self) -> list[dict[str, Any]]:
        """The entries of ``notify`` of its config."""
        return read_specs(self._check(self._read_changes()).report.expanded)

    def _check(self, changes: Sequence[str]) -> CheckedConfig:
        base = self.read_base()
        choices: Choices = {**base.choices}  # type: ignore[typeddict-item]  # from our own file
        config = load(
            base.source,
            variant=choices.get("variant"),
            overrides=to_overrides(choices, [*base.overrides, *changes]),
            allow_python=choices.get("allow_python", False),
        )
        if config.problems:
            raise ConfigError(*config.problems)
        return check_config(config, project=base.code.project)

    def change(self, overrides: Sequence[str]) -> SweepSettings:
        """Change what is searched from now on, such as ``sweep.trials=40``; returns the result.

        Raises:
            ConfigError: The changes are mistaken; nothing is changed then.
        """
        self.require_own()
        with durable.locked(self.path):
            settings = self.check_changes(overrides)
            changes = _add_changes(self._read_changes(), overrides)
            self._write_facts(self.read_facts() | {"changes": changes})
        return settings

    def _write_facts(self, facts: Mapping[str, Any]) -> None:
        _write_signed(
            self.path / SWEEP_FILE, {name: facts[name] for name in facts if name != SIGNATURE}
        )

    def require_own(self) -> None:
        """Refuse to execute the code of a sweep that this user did not start.

        Raises:
            RecordError: It came from elsewhere, was moved, or was changed.
        """
        facts = self.read_facts()
        if is_signed(self.path / SWEEP_FILE, facts) and facts.get("base") == self._digest_base():
            return
        raise RecordError(
            f"{self.id} was not started by you here, or was changed since\n"
            "  its trials would execute code: start the sweep again from its config"
        )

    def _digest_base(self) -> str:
        return hashlib.sha256(durable.read_bytes(self.path / _BASE_FILE)).hexdigest()

    def read_stamp(self) -> int:
        """A number that changes with every change of the settings."""
        return (self.path / SWEEP_FILE).stat().st_mtime_ns

    def write_summary(self, facts: Mapping[str, object]) -> None:
        """Write what lists show; it is made from the records, and nothing depends on it."""
        with suppress(OSError):
            durable.write_json(self.path / _SUMMARY_FILE, facts)

    def read_summary(self) -> dict[str, Any]:
        """Counts of its trials and the best one, as of the last trial that ended."""
        return durable.find_object(self.path / _SUMMARY_FILE)

    def lock(self) -> durable.HeldLock:
        """The right to start trials; RecordError while another process has it, or if not own."""
        self.require_own()
        facts = describe_process(os.getpid()) | {"time": utc_now()}
        lock = durable.try_lock(self.path / _LOCK_FILE, facts, is_gone=is_owner_gone)
        if lock is None:
            owner = durable.find_object(self.path / _LOCK_FILE)
            who = f"process {owner.get('pid')} on {owner.get('host')}"
            raise RecordError(
                f"{self.id}: {who} runs this sweep\n"
                f"  wait for its end, or stop it: `epochal stop {self.id}`"
            )
        return lock

    def is_locked(self) -> bool:
        """Whether a process runs the sweep."""
        path = self.path / _LOCK_FILE
        lock = durable.try_lock(path, {}, is_gone=is_owner_gone) if path.exists() else None
        if lock is not None:
            lock.release()
        return path.exists() and lock is None

    def write_job(self, base: FrozenJob, facts: TrialFacts) -> WaitingJob:
        """Write the job of a trial; from here on the trial exists."""
        file = self._job_file(facts["number"], facts["repeat"])
        job = _add_trial(base, {**facts, "seal": _sign(file, facts)})
        job.write(file)
        return self._to_waiting(job, file)

    def plan_job(self, base: FrozenJob, number: int = 0) -> WaitingJob:
        """The first job of a trial, without its values; nothing is written."""
        return self._to_waiting(base, self._job_file(number, 0))

    def _job_file(self, number: int, repeat: int) -> Path:
        return self.path / _JOBS_DIR / f"{number:06}-{repeat}.json"

    def is_own_job(self, base: FrozenJob, waiting: WaitingJob) -> bool:
        """Whether ``write_job`` of this user wrote a job, and it is unchanged since."""
        facts = dict(waiting.job.choices.get("trial") or {})
        seal = facts.pop("seal", None)
        try:
            is_same = read_job(waiting.file) == _add_trial(base, {**facts, "seal": seal})
        except RecordError:
            return False
        return is_same and has_signature(seal, waiting.file, facts)

    def iter_jobs(self) -> Iterator[WaitingJob]:
        """The job of every trial so far, in the order of their numbers."""
        for file in sorted((self.path / _JOBS_DIR).glob("*.json")):
            yield self._to_waiting(read_job(file), file)

    def _to_waiting(self, job: FrozenJob, file: Path) -> WaitingJob:
        number, _, repeat = file.stem.partition("-")
        return WaitingJob(key=int(number) * MAX_REPEATS + int(repeat), job=job, file=file)


def create_sweep(
    log_dir: Path, freeze: Callable[[Path], FrozenJob], *, name: str, command: str
) -> SweepFolder:
    """A new folder for a sweep.

    Args:
        log_dir: The folder of all runs.
        freeze: Freezes the experiment; gets the new folder for its code.
        name: What its id begins with.
        command: As typed.
    """
    sweeps = get_sweeps_dir(log_dir)
    tag = "".join(char if char.isalnum() else "-" for char in name)[:40].strip("-")
    stamp = f"{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    folder = SweepFolder(sweeps / f"{tag or 'sweep'}-{stamp}-{secrets.token_hex(2)}")
    make_private_dir(folder.path)
    try:
        (folder.path / _JOBS_DIR).mkdir(mode=0o700)
        freeze(folder.path / _CODE_DIR).write(folder.path / _BASE_FILE)
        facts = {"format": 1, "command": redact(command), "begun": utc_now(), "changes": []}
        _write_signed(folder.path / SWEEP_FILE, facts | {"base": folder._digest_base()})
    except BaseException:  # also Ctrl-C
        durable.remove_tree(folder.path, "unfinished")
        raise
    return folder


def _add_changes(changes: Sequence[str], overrides: Sequence[str]) -> list[str]:
    """All changes; one that sets the same key again replaces the earlier one."""
    keys = {one.partition("=")[0] for one in overrides}
    return [*(one for one in changes if one.partition("=")[0] not in keys), *overrides]


def _add_trial(base: FrozenJob, facts: Mapping[str, Any]) -> FrozenJob:
    return replace(base, choices={**base.choices, "trial": facts})


def _write_signed(path: Path, values: Mapping[str, Any]) -> None:
    with _explaining_key():
        write_signed(path, values)


def _sign(path: Path, values: Mapping[str, Any]) -> str:
    with _explaining_key():
        return sign(path, values)


@contextmanager
def _explaining_key() -> Iterator[None]:
    try:
        yield
    except KeyUnusableError as error:
        raise RecordError(f"the sweep cannot be signed: {error}") from error


def list_sweeps(runs_dir: Path) -> list[SweepFolder]:
    """Every sweep of a folder of runs, oldest first."""
    files = list(get_sweeps_dir(runs_dir.absolute()).glob(f"*/{SWEEP_FILE}"))
    folders = [SweepFolder(file.parent) for file in files]
    return sorted(folders, key=lambda one: str(one.read_facts().get("begun")))


def find_sweep(name: str, runs_dir: Path) -> SweepFolder:
    """The sweep that a name means: its folder, its id or a part of it, or ``last``.

    Raises:
        RecordError: There is none, or several.
    """
    if is_sweep_folder(name):
        return SweepFolder(Path(name).absolute())
    found = list_sweeps(runs_dir)
    if not found:
        raise RecordError(f"{runs_dir}: no sweeps here\n  start one with `epochal sweep CONFIG`")
    matches = [one for one in found if one.id == name]
    matches = matches or (
        [found[-1]] if name == "last" else [one for one in found if name in one.id]
    )
    if len(matches) == 1:
        return matches[0]
    if not matches:
        hint = suggest(name, [one.id for one in found]) or f"the last one is {found[-1].id!r}"
        raise RecordError(f"{name}: no such sweep in {runs_dir}\n  {hint}")
    names = "\n".join(f"  {one.id}" for one in matches[-8:])
    raise RecordError(f"{name}: fits {len(matches)} sweeps\n{names}")
