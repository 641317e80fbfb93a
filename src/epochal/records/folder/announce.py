"""Tells whoever started this process which folder its run has."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from epochal import durable

RUN_FILE_VARIABLE = "EPOCHAL_RUN_FILE"
"""The environment variable that names the file to write the folder's path into."""


def report_run_folder(folder: Path) -> bool:
    """Write the folder where the starter looks for it, once; gives whether there is a starter."""
    target = os.environ.pop(RUN_FILE_VARIABLE, "")  # not for processes that the run starts
    if target:
        with suppress(OSError):  # then a restart begins anew
            durable.write_text(Path(target), str(folder.absolute()))
    return bool(target)
