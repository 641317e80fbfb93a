"""The cost of training frameworks per step, compared with a hand-written loop.

In one fresh process a short segment is trained by the peer and then by the hand-written loop, in
alternating order, or by both step by step where steps are long. There are several pairs per
process, and the processes of all peers alternate, round after round. The hand-written loop paired
with itself is the control, which must be 1.00. Prints tables, writes all figures as JSON, and with
``--keep`` the tables to RESULTS.md. Older figures of the same versions stay in the JSON unless they
are measured again, so ``--case``, ``--model`` and ``--peer`` can measure a part; tables name the
commit of every row. ``make bench`` makes the environment.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import report
from figures import ratio
from processes import launch
from rows import PAIRS, PEERS, ROWS, Row
from work import CASES, WORKS

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
START_ROUNDS = 5
BUSY = 0.5


class Progress:
    """Prints one line per process with the remaining time."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.began = total, 0, time.monotonic()

    def show(self, what: str, found: dict[str, Any]) -> None:
        """Print the result of a process."""
        self.done += 1
        left = (time.monotonic() - self.began) / self.done * (self.total - self.done)
        print(f"[{self.done:>4}/{self.total}] {what:<58} {_in_short(found):<24}", end="")
        print(f" {left / 60:.0f} min left", flush=True)


def _in_short(found: dict[str, Any]) -> str:
    if "error" in found:
        return "FAILED: " + found["error"].strip().splitlines()[-1][:100]
    if "pairs" in found:
        return f"CPU ratio {statistics.median(map(ratio('cpu'), found['pairs'])):.3f}"
    return f"first step {found['first_step']:.2f} s"


class Results:
    """All figures, saved in a file after every process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = {**describe(), "runs": [], "starts": []}
        if path.exists():
            older = json.loads(path.read_text(encoding="utf-8"))
            if older["versions"] == self.data["versions"]:
                self.data |= {name: older[name] for name in ("runs", "starts")}

    def forget(self, kind: str, **known: object) -> None:
        """Drop older figures of what is measured again."""
        self.data[kind] = [
            run
            for run in self.data[kind]
            if any(run[name] != value for name, value in known.items())
        ]

    def add(self, kind: str, run: dict[str, Any]) -> None:
        """Save the figures of one process."""
        self.data[kind].append({"commit": find_commit(), **run})
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.data), encoding="utf-8")


def find_commit() -> str:
    """The measured commit, with a plus sign if files differ from it; empty if unknown."""
    git = ("git", "-C", str(HERE))
    try:
        commit = subprocess.check_output(
            [*git, "rev-parse", "HEAD"], text=True, stderr=subprocess.DEVNULL
        ).strip()
        changes = [*git, "status", "--porcelain", "--untracked-files=no", "--", "../src", "."]
        is_changed = bool(subprocess.check_output(changes, text=True).strip())
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f"{commit}+" if is_changed else commit


def describe() -> dict[str, Any]:
    """Date, machine and versions."""
    cpu = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
        cpu = next((line.partition(": ")[2] for line in lines if "model name" in line), cpu)
    versions = {"Python": platform.python_version()}
    for name in dict.fromkeys(["torch", *(row.package for row in PEERS if row.package)]):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "date": datetime.date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores ({cpu})",
        "versions": versions,
    }


def in_turn(rows: list[Row], rounds: int) -> Iterator[tuple[int, Row]]:
    """Every row in every round, each round beginning with another one."""
    for number in range(rounds):
        start = number % len(rows)
        for row in rows[start:] + rows[:start]:
            yield number, row


def measure(args: argparse.Namespace, results: Results) -> None:
    """Run all processes that the arguments select."""
    cells = [
        (case, model, [row for row in ROWS[case] if row.peer in (*args.peer, "hand_written")])
        for case in args.case
        for model in args.model
    ]
    starts = [row for row in PEERS if row.peer in (*args.peer, "hand_written")]
    num_starts = 0 if args.no_start else args.start_rounds * len(starts)
    progress = Progress(sum(len(rows) for *_, rows in cells) * args.rounds + num_starts)
    for case, model, rows in cells:
        for row in rows:
            results.forget("runs", case=case, model=model, row=row.name)
        for number, row in in_turn(rows, args.rounds):
            found = measure_row(row, case, model, pairs=args.pairs or PAIRS[case], number=number)
            results.add(
                "runs", {"case": case, "model": model, "row": row.name, "round": number, **found}
            )
            progress.show(f"{model}, {case}, round {number + 1}: {row.name}", found)
    for number, row in in_turn(starts, args.start_rounds if num_starts else 0):
        if number == 0:
            results.forget("starts", row=row.name)
        found = launch("start", terminal=False, peer=row.peer, case="minimal", model="tiny")
        results.add("starts", {"row": row.name, "round": number, **found})
        progress.show(f"start, round {number + 1}: {row.name}", found)


def measure_row(row: Row, case: str, model: str, *, pairs: int, number: int) -> dict[str, Any]:
    """The figures of one process of a row."""
    own = case if row.peer != "hand_written" or case == "realistic" else "minimal"
    return launch(
        "pairs",
        terminal=case == "realistic",
        peer=row.peer,
        case=own,
        model=model,
        opaque=row.opaque,
        pairs=pairs,
        round=number,
    )


def parse() -> argparse.Namespace:
    """The arguments with their defaults."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    peers = tuple(dict.fromkeys(row.peer for row in PEERS))
    parser.add_argument("--case", nargs="+", choices=CASES, default=CASES)
    parser.add_argument("--model", nargs="+", choices=tuple(WORKS), default=tuple(WORKS))
    parser.add_argument("--peer", nargs="+", choices=peers, default=peers)
    parser.add_argument("--rounds", type=int, default=6, help="fresh processes of each row")
    parser.add_argument("--pairs", type=int, help="pairs of segments per process")
    parser.add_argument("--start-rounds", type=int, default=START_ROUNDS)
    parser.add_argument("--no-start", action="store_true", help="leave out import and first step")
    parser.add_argument("--quick", action="store_true", help="one pair of everything: does it run?")
    parser.add_argument("--report", action="store_true", help="measure nothing, show what there is")
    parser.add_argument("--keep", action="store_true", help="put the tables into RESULTS.md")
    parser.add_argument("--json", type=Path, default=HERE / "results" / "overhead.json")
    args = parser.parse_args()
    if args.quick:
        args.rounds = args.pairs = args.start_rounds = 1
        args.json = args.json.with_name("quick.json")
    return args


def main() -> None:
    """Measure, print and save."""
    args = parse()
    if os.getloadavg()[0] > BUSY and not args.report:
        print("the machine is busy: figures will be rough")
    results = Results(args.json)
    if not args.report:
        measure(args, results)
    text = report.full_report(results.data)
    print(f"\n{text}\nall figures: {args.json}")
    if args.keep:
        report.keep(text, HERE / "RESULTS.md")


if __name__ == "__main__":
    main()
