"""The benchmark of checkpoints runs and leaves nothing behind; its figures are not looked at."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "checkpoints.py"


def test_benchmark_prints_a_table_and_leaves_no_files(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, "--megabytes", "1", "--rounds", "1", "--dir", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "checkpoint / torch.save + fsync:" in done.stdout
    assert list(tmp_path.iterdir()) == []
