"""The benchmark of checkpoints runs and leaves no files; its figures are not tested."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "checkpoints.py"
SMALL = ("--megabytes", "1", "--rounds", "1", "--steps", "100")


def test_benchmark_prints_a_table_and_leaves_no_files(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, *SMALL, "--dir", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for goal in ("checkpoint / torch.save + fsync:", "wait / copy:", "latest / earliest place:"):
        assert goal in done.stdout
    assert list(tmp_path.iterdir()) == []
