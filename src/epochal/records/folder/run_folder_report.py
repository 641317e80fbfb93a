"""Reports the folder of a run to the supervisor that started this process."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from epochal import durable

RUN_FILE_VARIABLE = "EPOCHAL_RUN_FILE"
"""The environment variable with the file to which the path of the folder is written."""


def report_run_folder(folder: Path) -> bool:
    """Report the folder once; gives whether a supervisor asked for it."""
    target = os.environ.pop(RUN_FILE_VARIABLE, "")  # child processes must not inherit it
    if target:
        with suppress(OSError):  # a restart then begins a new run
            durable.write_text(Path(target), str(folder.absolute()))
    return bool(target)
