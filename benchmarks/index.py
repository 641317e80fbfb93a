"""The time to list many runs: the index is rebuilt, refreshed and queried.

Makes ten thousand run folders, builds their index, and runs commands in fresh processes. Prints
medians and goals; leaves no files.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from made_runs import make_runs

BUILD_GOAL = 60.0
LIST_GOAL = 0.5
ROUNDS = 9
LIST = ["runs", "--where", "optim.lr > 1e-3 and val/loss < 0.5", "--sort", "val/loss"]
COMMANDS = {
    "python -c pass": (None, None),
    "index (nothing changed)": (["index"], None),
    "runs --where ... --sort ... --limit 20": ([*LIST, "--limit", "20"], LIST_GOAL),
    "runs --where ... --sort ... (all rows)": (LIST, None),
    "runs --search 'warm-up' --limit 20": (["runs", "--search", "warm-up", "--limit", "20"], None),
    "show last": (["show", "last"], None),
}


def run(words: list[str] | None, root: Path) -> tuple[float, float]:
    """Seconds and CPU seconds of a command in a fresh process."""
    start = ["-c", "pass"] if words is None else ["-m", "epochal", *words, "--runs-dir", str(root)]
    before, begin = os.times(), time.perf_counter()
    done = subprocess.run([sys.executable, *start], capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - begin, os.times()
    if done.returncode:
        raise SystemExit(f"epochal {' '.join(words or [])}\n{done.stderr}")
    cpu = after.children_user + after.children_system
    return wall, cpu - before.children_user - before.children_system


def measure(root: Path) -> None:
    """Build once, rebuild once, then every command several times in turn."""
    print(f"{'':<42}{'wall':>9}{'CPU':>9}{'goal':>9}")
    for name in ("refresh", "rebuild"):
        wall, cpu = run(["index", name], root)
        title = "index, from nothing" if name == "refresh" else "index rebuild"
        print(f"{title:<42}{wall:>8.2f}s{cpu:>8.2f}s{BUILD_GOAL:>8.2f}s")
    time.sleep(2.5)  # the refresh reads folders that changed just now again
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for _ in range(ROUNDS + 1):
        for name, (words, _goal) in COMMANDS.items():
            times[name].append(run(words, root))
    for name, (_words, goal) in COMMANDS.items():
        wall, cpu = (statistics.median(column) for column in zip(*times[name][1:], strict=True))
        shown = f"{goal:.2f}s" if goal else "-"
        print(f"{name:<42}{wall:>8.3f}s{cpu:>8.3f}s{shown:>9}")


def main() -> None:
    """Make the runs, measure and clean up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--keep", type=Path, help="make the runs here, and leave them")
    args = parser.parse_args()
    root = args.keep or Path(tempfile.mkdtemp(prefix="epochal-index-"))
    try:
        if not any(root.glob("*/")):
            make_runs(root, args.runs)
        shutil.rmtree(root / ".epochal", ignore_errors=True)
        version = platform.python_version()
        print(f"{args.runs:,} runs, Python {version}, {os.cpu_count()} cores\n")
        measure(root)
    finally:
        if args.keep is None:
            shutil.rmtree(root)


if __name__ == "__main__":
    main()
