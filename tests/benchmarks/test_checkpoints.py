"""The benchmark of checkpoints runs and leaves no files; its figures are not tested."""

from __future__ import annotations

from pathlib import Path

import forked

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "checkpoints.py"
SMALL = ("--megabytes", "1", "--rounds", "1", "--steps", "20")


def test_benchmark_prints_a_table_and_leaves_no_files(tmp_path: Path) -> None:
    done = forked.run(str(SCRIPT), *SMALL, "--dir", str(tmp_path), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for goal in ("checkpoint / torch.save + fsync:", "wait / copy:", "latest / earliest place:"):
        assert goal in done.stdout
    assert list(tmp_path.iterdir()) == []
