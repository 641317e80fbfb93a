"""Freezes checked configs and the code of their projects, so that they can run later."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epochal.config import freeze_source
from epochal.errors import ConfigError, Problem
from epochal.launch.jobs.freeze import CodeOptions, freeze_code, make_batch_dir
from epochal.launch.jobs.frozen_job import FrozenJob
from epochal.launch.pool.backlog import WaitingJob
from epochal.launch.pool.run_jobs import remove_batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from epochal.experiment.config.check_file import CheckedConfig
    from epochal.experiment.config.choices import Choices
    from epochal.launch.jobs.frozen_job import FrozenCode

_CHOICES = (
    "name", "desc", "epochs", "debug", "fast", "no_file", "allow_python", "resume", "resume_from",
    "allow_changed",
)  # fmt: skip
"""Choices that a frozen job keeps; the others are decided where it runs."""

_VARIABLES = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Environment variables that decide what a job imports, and how it computes on the CPU."""


def freeze_configs(
    configs: Sequence[CheckedConfig],
    *,
    overrides: Sequence[str] = (),
    choices: Choices | None = None,
    command: str,
    home: Path | None = None,
    values: Mapping[int, Mapping[str, Any]] | None = None,
) -> list[WaitingJob]:
    """Freeze configs and the code of their projects into a new folder; one job for each.

    Args:
        configs: Checked, without mistakes.
        overrides: As typed; the configs have them already.
        choices: Choices for each run; ``device`` is the preferred device.
        command: The command that a record shows.
        home: The folder of runs below which the jobs are kept; by default that of the configs.
        values: The values of configs that are no files, by their position.
    """
    choices = choices or {}
    batch = make_batch_dir(home or get_log_dir(configs[0]))
    try:
        return list(_freeze(configs, overrides, choices, command, batch, values or {}))
    except BaseException:  # also Ctrl-C
        remove_batch(batch)
        raise


def _freeze(
    configs: Sequence[CheckedConfig],
    overrides: Sequence[str],
    choices: Choices,
    command: str,
    batch: Path,
    values: Mapping[int, Mapping[str, Any]],
) -> Iterator[WaitingJob]:
    frozen: dict[object, FrozenCode] = {}
    preferred = choices.get("device")
    for index, checked in enumerate(configs):
        project, options, config = checked.report.project, _code_options(checked), checked.config
        key = (project.dir, tuple(options.ignore), options.max_file_bytes)
        if key not in frozen:
            frozen[key] = freeze_code(project, batch, options, command=command)
        given = values.get(index)
        kept = {name: value for name, value in choices.items() if name in _CHOICES and value}
        job = FrozenJob(
            name=str(checked.report.expanded.mapping["tag"].value),
            source=freeze_source(_path(checked), config.sources) if given is None else given,
            overrides=tuple(overrides),
            choices=kept | {"variant": config.variant},
            code=frozen[key],
            log_dir=get_log_dir(checked),
            cwd=Path.cwd(),
            python=sys.executable,
            environment={name: os.environ[name] for name in _VARIABLES if os.environ.get(name)},
        )
        file = batch / f"{index + 1}.json"
        job.write(file)
        yield WaitingJob(
            key=index + 1,
            job=job,
            file=file,
            preferred="" if preferred is None else str(preferred),
        )


def get_log_dir(checked: CheckedConfig) -> Path:
    """The folder of all runs of a config."""
    record = checked.report.expanded.mapping["record"].to_plain()
    folder = Path(record["log_dir"]).expanduser()
    return (folder.parent if record["exact"] else folder).absolute()


def _code_options(checked: CheckedConfig) -> CodeOptions:
    record = checked.report.expanded.mapping["record"].to_plain()
    return CodeOptions(ignore=tuple(record["ignore"]), max_file_bytes=record["max_file_bytes"])


def _path(checked: CheckedConfig) -> Path:
    path = checked.config.path
    if path is None:
        what = "a config that is no file cannot be frozen here"
        raise ConfigError(Problem("config", what, hint="write it to a file"))
    return path
