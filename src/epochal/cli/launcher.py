"""Checks experiments for the web page, and adds them to the queue."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, final

from typing_extensions import override

from epochal.errors import ConfigError
from epochal.experiment.config.check_file import check_file
from epochal.experiment.config.freeze import freeze_configs
from epochal.launch.queue.queue import Queue
from epochal.web.launching import ConfigValue, LaunchCheck, Launcher, can_be_changed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from epochal.experiment.config.check_file import FileCheck
    from epochal.experiment.config.choices import Choices

COMMAND = "epochal serve"
"""The command that records of such runs show."""


@final
class QueueLauncher(Launcher):
    """Adds experiments to the queue of a folder of runs."""

    def __init__(self, runs_dir: Path) -> None:
        self._queue = Queue(runs_dir)

    @override
    def check(self, file: Path, overrides: Sequence[str], name: str) -> LaunchCheck:
        found = check_file(file, overrides, _choices(name))
        if not found.checked:
            return LaunchCheck(found.problems)
        return LaunchCheck(found.problems, _read_values(found), _read_desc(found))

    @override
    def add(self, file: Path, overrides: Sequence[str], name: str) -> list[int]:
        choices = _choices(name)
        found = check_file(file, overrides, choices)
        if found.problems:
            raise ConfigError(*found.problems)
        jobs = freeze_configs(
            found.checked,
            overrides=overrides,
            choices=choices,
            command=COMMAND,
            home=self._queue.runs_dir,
        )
        return [job.id for job in self._queue.add(jobs)]


def _choices(name: str) -> Choices:
    return {"name": name} if name.strip() else {}


def _read_values(found: FileCheck) -> list[ConfigValue]:
    """The numbers and booleans that a request may change."""
    leaves = found.checked[0].report.expanded.iter_leaves()
    return [
        ConfigValue(key, node.value, node.layer == "default")
        for key, node in leaves
        if isinstance(node.value, bool | int | float)
        and math.isfinite(node.value)
        and can_be_changed(key)
    ]


def _read_desc(found: FileCheck) -> str:
    desc = found.checked[0].report.expanded.mapping.get("desc")
    return desc.value if desc is not None and isinstance(desc.value, str) else ""
