"""Start-up time: import, help, check and the list of runs.

Commands alternate in fresh processes, with ``python -c pass`` as the lower bound.
Prints a table with medians and the goals; writes nothing.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROUNDS = 15
MISTAKES = ROOT / "tests" / "data" / "mistakes" / "mistakes.yaml"
EXAMPLE = ROOT / "examples" / "digits" / "digits.yaml"

COMMANDS: dict[str, tuple[list[str], float | None]] = {
    "python -c pass": (["-c", "pass"], None),
    "import epochal": (["-c", "import epochal"], None),
    "epochal --help": (["-m", "epochal", "--help"], 0.25),
    "epochal check digits.yaml": (["-m", "epochal", "check", str(EXAMPLE)], 0.4),
    "epochal check mistakes.yaml": (["-m", "epochal", "check", str(MISTAKES)], 0.4),
    "epochal runs (no runs)": (["-m", "epochal", "runs"], None),
}


def measure(words: list[str], folder: Path) -> float:
    """Wall-clock seconds of one fresh process."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, check=False)
    return time.perf_counter() - begin


def main() -> None:
    """Measure every command in turn, several times, and print the medians."""
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(ROUNDS + 1):
            for name, (words, _) in COMMANDS.items():
                times[name].append(measure(words, Path(folder)))
    print(f"{'command':<30}{'median':>9}{'fastest':>9}{'slowest':>9}{'goal':>8}")
    for name, (_, goal) in COMMANDS.items():
        seconds = times[name][1:]  # the first round fills the caches of the file system
        figures = (statistics.median(seconds), min(seconds), max(seconds))
        shown = "".join(f"{value:>8.3f}s" for value in figures)
        print(f"{name:<30}{shown}{f'{goal:.2f}s' if goal else '-':>8}")


if __name__ == "__main__":
    main()
