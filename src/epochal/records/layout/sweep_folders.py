"""Where the folders of sweeps are: beside the runs, ``sweeps/ID`` with a file ``sweep.json``."""

from __future__ import annotations

from pathlib import Path

SWEEPS_DIR = "sweeps"
SWEEP_FILE = "sweep.json"


def get_sweeps_dir(runs_dir: Path) -> Path:
    """The folder of all sweeps of a folder of runs."""
    return runs_dir / SWEEPS_DIR


def is_sweep_folder(path: Path | str) -> bool:
    """Whether a path is the folder of a sweep."""
    return (Path(path) / SWEEP_FILE).is_file()
