"""What saving costs: a checkpoint beside ``torch.save`` followed by fsync, and the wait for it.

Both write the same tensors to the same folder, in turns; nothing is in doubt when either returns,
and a checkpoint is hashed and verified besides. Prints medians and goals; leaves no files.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from epochal.checkpoint import read_checkpoint, snapshot, write_checkpoint
from epochal.records.manifests import verify

if TYPE_CHECKING:
    from collections.abc import Callable

GOAL = 1.3
LAYERS = 32


def make_state(size: int) -> dict[str, object]:
    """Weights and two moments per weight, ``size`` bytes in all."""
    count = size // (3 * 4 * LAYERS)
    layers = range(LAYERS)
    model = {f"{i}.weight": torch.randn(count) for i in layers}
    moments = {f"{i}.weight": [torch.randn(count), torch.rand(count)] for i in layers}
    return {"model": model, "optim": moments, "step": 1000}


def save_with_torch(state: dict[str, object], folder: Path) -> None:
    """What a careful script does without a framework."""
    with (folder / "state.pt").open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())


def measure(action: Callable[[], object]) -> float:
    """Wall-clock seconds of one call."""
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def measure_round(state: dict[str, object], folder: Path, times: dict[str, list[float]]) -> None:
    """Save both ways once; the files are removed afterwards."""
    os.sync()
    times["torch.save + fsync"].append(measure(lambda: save_with_torch(state, folder)))
    (folder / "state.pt").unlink()
    os.sync()
    begin = time.perf_counter()
    taken = snapshot(state)
    times["copy (training waits)"].append(time.perf_counter() - begin)
    target = folder / "checkpoints"
    times["checkpoint"].append(measure(lambda: write_checkpoint(target, "a", taken, {})))
    times["verify"].append(measure(lambda: verify(target / "a")))
    times["read"].append(measure(lambda: read_checkpoint(target / "a")))
    shutil.rmtree(target)


def main() -> None:
    """Measure in rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", type=Path, default=None, help="on the disk to measure")
    args = parser.parse_args()
    state = make_state(args.megabytes * 1_000_000)
    names = ("torch.save + fsync", "checkpoint", "copy (training waits)", "verify", "read")
    times: dict[str, list[float]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory(dir=args.dir) as folder:
        for _ in range(args.rounds):
            measure_round(state, Path(folder), times)
    print(f"{args.megabytes} MB, {args.rounds} rounds\n")
    print(f"{'':<24}{'median':>9}{'fastest':>9}{'slowest':>9}{'MB/s':>8}")
    for name, seconds in times.items():
        median = statistics.median(seconds)
        shown = "".join(f"{value:>8.3f}s" for value in (median, min(seconds), max(seconds)))
        print(f"{name:<24}{shown}{args.megabytes / median:>8.0f}")
    ratio = statistics.median(times["checkpoint"]) / statistics.median(times["torch.save + fsync"])
    print(f"\ncheckpoint / torch.save + fsync: {ratio:.2f} (goal: at most {GOAL})")


if __name__ == "__main__":
    main()
