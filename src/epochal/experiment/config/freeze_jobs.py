"""Freezes checked configs and the code of their projects, so that they can run later."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from epochal.config import freeze_source
from epochal.launch.jobs.freeze_code import CodeOptions, freeze_code, make_batch_dir
from epochal.launch.jobs.frozen_job import FrozenJob
from epochal.launch.jobs.private_files import make_private_dir
from epochal.launch.pool.backlog import WaitingJob
from epochal.launch.pool.run_jobs import remove_batch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from epochal.config import FrozenSource
    from epochal.experiment.config.check_file import CheckedConfig
    from epochal.experiment.config.choices import Choices
    from epochal.launch.jobs.frozen_job import FrozenCode

_KEPT_CHOICES = (
    "name", "desc", "epochs", "debug", "fast", "no_file", "allow_python", "resume", "resume_from",
    "allow_changed", "nproc",
)  # fmt: skip
"""Choices that a frozen job keeps; the others are decided where it runs."""

_VARIABLES = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Environment variables that decide what a job imports, and how it computes on the CPU."""


@final
class JobFreezer:
    """Freezes configs one by one into a new folder; the code of a project is copied only once.

    Args:
        home: The folder of runs below which the jobs are kept.
        command: The command that records show.
        batch: The new folder, if it is not one of those below ``home``.
    """

    def __init__(self, home: Path, *, command: str, batch: Path | None = None) -> None:
        self.batch = make_batch_dir(home) if batch is None else make_private_dir(batch)
        """The folder of the jobs; ``remove_batch`` removes it."""

        self._home = home
        self._command = command
        self._codes: dict[object, FrozenCode] = {}
        self._count = 0

    def freeze(
        self,
        checked: CheckedConfig,
        *,
        overrides: Sequence[str] = (),
        choices: Choices | None = None,
        values: Mapping[str, Any] | None = None,
        has_test: bool = False,
    ) -> WaitingJob:
        """The frozen job of a checked config without mistakes.

        Args:
            checked: The config.
            overrides: As typed; the config has them already.
            choices: Choices for the run; ``device`` is the preferred device.
            values: The values of a config that is not a file.
            has_test: Whether the best weights are tested after the training.
        """
        choices = choices or {}
        self._count += 1
        kept = {name: value for name, value in choices.items() if name in _KEPT_CHOICES and value}
        job = FrozenJob(
            name=str(checked.report.expanded.mapping["tag"].value),
            source=_freeze_source(checked) if values is None else values,
            overrides=tuple(overrides),
            choices=kept | {"variant": checked.config.variant},
            code=self._freeze_code(checked),
            log_dir=get_log_dir(checked),
            cwd=Path.cwd(),
            python=sys.executable,
            environment={name: os.environ[name] for name in _VARIABLES if os.environ.get(name)},
            launch=checked.report.expanded.mapping["launch"].to_plain(),
            has_test=has_test,
        )
        file = self.batch / f"{self._count}.json"
        job.write(file)
        preferred = choices.get("device")
        return WaitingJob(
            key=self._count,
            job=job,
            file=file,
            preferred="" if preferred is None else str(preferred),
        )

    def _freeze_code(self, checked: CheckedConfig) -> FrozenCode:
        project, options = checked.report.project, _code_options(checked)
        key = (project.dir, tuple(options.ignore), options.max_file_bytes)
        if key not in self._codes:
            self._codes[key] = freeze_code(
                project, self.batch, options, log_dir=self._home, command=self._command
            )
        return self._codes[key]


def freeze_configs(
    configs: Sequence[CheckedConfig],
    *,
    overrides: Sequence[str] = (),
    choices: Choices | None = None,
    command: str,
    home: Path | None = None,
    batch: Path | None = None,
    values: Mapping[int, Mapping[str, Any]] | None = None,
    has_test: bool = False,
) -> list[WaitingJob]:
    """Freeze configs and the code of their projects into a new folder; one job for each.

    Takes what ``JobFreezer`` takes; ``values`` are by the position of the config, and ``home`` is
    by default the folder of the runs of the first one.
    """
    freezer = JobFreezer(home or get_log_dir(configs[0]), command=command, batch=batch)
    given = values or {}
    try:
        return [
            freezer.freeze(
                one,
                overrides=overrides,
                choices=choices,
                values=given.get(index),
                has_test=has_test,
            )
            for index, one in enumerate(configs)
        ]
    except BaseException:  # also Ctrl-C
        remove_batch(freezer.batch)
        raise


def get_log_dir(checked: CheckedConfig) -> Path:
    """The folder of all runs of a config."""
    record = checked.report.expanded.mapping["record"].to_plain()
    folder = Path(record["log_dir"]).expanduser()
    return (folder.parent if record["exact"] else folder).absolute()


def _code_options(checked: CheckedConfig) -> CodeOptions:
    record = checked.report.expanded.mapping["record"].to_plain()
    return CodeOptions(ignore=tuple(record["ignore"]), max_file_bytes=record["max_file_bytes"])


def _freeze_source(checked: CheckedConfig) -> FrozenSource:
    config = checked.config
    assert config.path is not None, "a config that is not a file needs its values"
    return freeze_source(config.path, config.sources)
