"""The time to save and resume: compared with ``torch.save`` and fsync, and in real runs.

Both ways of saving write the same tensors to the same folder, alternating and in changing order.
Both are durable when they return; a checkpoint is also hashed. Memory is touched and freed before
each save, because pages that a virtual machine must first get from its host would dominate. Then
real runs: how long a background save delays a step, and how soon a run resumes from different
positions of a long epoch. Prints medians and goals; leaves no files.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import torch

from epochal.checkpoint import read_checkpoint, snapshot_to_host, write_checkpoint
from epochal.records.folder.checkpoint_manifests import verify_checkpoint
from saved_runs import measure_resume, measure_stall, warm_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from epochal.checkpoint import SerializedState

    Times = dict[str, list[tuple[float, float]]]

GOAL = 1.3
STALL_GOAL = 1.2
RESUME_GOAL = 1.2
LAYERS = 32
SAVE, CHECKPOINT = "torch.save + fsync", "checkpoint"


def make_state(size: int) -> dict[str, object]:
    """Weights with two moments each, ``size`` bytes in all."""
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


def measure(action: Callable[[], object]) -> tuple[float, float]:
    """Seconds of one call, on the clock and of all threads' work."""
    begin, worked = time.perf_counter(), time.process_time()
    action()
    return time.perf_counter() - begin, time.process_time() - worked


def settle(size: int) -> None:
    """Restore the initial state of a measurement."""
    os.sync()
    warm_memory(size * 5 // 4)


def measure_round(
    number: int, state: dict[str, object], taken: SerializedState, folder: Path
) -> Times:
    """Save both ways once, then read; the files are removed afterwards."""
    size = sum(tensor.nbytes for tensor in taken.tensors.values())
    target = folder / "checkpoints"
    ways: list[tuple[str, Callable[[], object]]] = [
        (SAVE, lambda: save_with_torch(state, folder)),
        (CHECKPOINT, lambda: write_checkpoint(target, "a", taken, {})),
    ]
    times: Times = {}
    for name, action in ways if number % 2 else reversed(ways):
        settle(size)
        times[name] = [measure(action)]
    (folder / "state.pt").unlink()
    times["verify"] = [measure(lambda: verify_checkpoint(target / "a"))]
    settle(size)
    times["verify and read"] = [measure(lambda: read_checkpoint(target / "a"))]
    shutil.rmtree(target)
    return times


def report_saving(folder: Path, megabytes: int, rounds: int) -> None:
    """Print how long it takes to save a state both ways."""
    state = make_state(megabytes * 1_000_000)
    taken = snapshot_to_host(state)
    times: Times = {name: [] for name in (SAVE, CHECKPOINT, "verify", "verify and read")}
    for number in range(rounds):
        for name, found in measure_round(number, state, taken, folder).items():
            times[name] += found
    print(f"saving {megabytes} MB, {rounds} rounds\n")
    print(f"{'':<24}{'median':>9}{'fastest':>9}{'slowest':>9}{'CPU':>9}{'MB/s':>8}")
    for name, pairs in times.items():
        clock, worked = zip(*pairs, strict=True)
        values = (median(clock), min(clock), max(clock), median(worked))
        shown = "".join(f"{value:>8.3f}s" for value in values)
        print(f"{name:<24}{shown}{megabytes / values[0]:>8.0f}")
    ratio = median(x for x, _ in times[CHECKPOINT]) / median(x for x, _ in times[SAVE])
    print(f"\ncheckpoint / torch.save + fsync: {ratio:.2f} (goal: at most {GOAL})")


def report_stall(folder: Path, megabytes: int, rounds: int, period: int) -> None:
    """Print how long training waits for a save, and its speed while one is written."""
    stall = measure_stall(folder, megabytes * 1_000_000, rounds, period)
    pause, copy = median(stall.pauses) - median(stall.ordinary), median(stall.copies)
    print(f"\nsaving {megabytes} MB while a run trains, {len(stall.pauses)} saves\n")
    print(f"{'training waits':<32}{pause:>8.3f}s")
    print(f"{'copy to host memory alone':<32}{copy:>8.3f}s")
    print(f"{'a step otherwise':<32}{1e3 * median(stall.ordinary):>8.3f}ms")
    if stall.beside:
        print(f"{'a step while one is written':<32}{1e3 * median(stall.beside):>8.3f}ms")
    print(f"\nwait / copy: {pause / copy:.2f} (goal: at most {STALL_GOAL})")


def report_resume(folder: Path, steps: int, rounds: int) -> None:
    """Print how long it takes to resume from different positions of an epoch."""
    times, whole = measure_resume(folder, steps, rounds)
    print(f"\nresuming within an epoch of {steps:,} steps, until the first step is done\n")
    for place, seconds in times.items():
        print(f"{f'after {place:,} steps':<24}{median(seconds):>8.3f}s")
    print(f"{'the whole epoch':<24}{whole:>8.1f}s")
    medians = [median(seconds) for seconds in times.values()]
    print(
        f"\nlatest / earliest place: {medians[-1] / medians[0]:.2f} (goal: at most {RESUME_GOAL})"
    )


def main() -> None:
    """Measure in rounds and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=20_000, help="of the long epoch")
    parser.add_argument("--dir", type=Path, default=None, help="on the disk to measure")
    args = parser.parse_args()
    print(
        f"Python {platform.python_version()}, torch {torch.__version__}, "
        f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}\n"
    )
    with tempfile.TemporaryDirectory(dir=args.dir) as name:
        folder = Path(name)
        report_saving(folder, args.megabytes, args.rounds)
        report_stall(folder, args.megabytes, args.rounds, max(args.steps // 10, 2))
        report_resume(folder, args.steps, args.rounds)


if __name__ == "__main__":
    main()
