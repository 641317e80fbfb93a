"""The cost of logging ten numbers per call, compared with TensorBoard, W&B, MLflow and trackio.

Each figure comes from a fresh process, and the loggers alternate. First, calls follow each other
without pause: time per call in the calling thread, points per second until all are stored, bytes
per point. Then calls come every five milliseconds, as in a training, and the process is killed with
SIGKILL at a random moment: points of calls that had returned and cannot be read are lost. (The file
is not called ``logging``, because every library imports that name.)
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from loggers import LOGGERS, OWN, REFERENCE, SERIES, Logger

COST_GOAL_US = 10.0
RATIO_GOAL = 10.0
WARM_CALLS = 20
MOST_SECONDS = 4.0
PACE_SECONDS = 0.005


def values_at(step: int) -> dict[str, float]:
    """Ten numbers that change with every call."""
    return {f"metric_{i}": step * 0.001 + i for i in range(SERIES)}


def measure_cost(logger: Logger, folder: Path, calls: int) -> dict[str, float]:
    """Log without pause for some calls or some seconds."""
    log, end = logger.begin(folder)
    for step in range(WARM_CALLS):
        log(values_at(step), step)
    all_values = [values_at(step) for step in range(WARM_CALLS, WARM_CALLS + calls)]
    taken, clock = [], time.perf_counter
    begun = clock()
    for step, values in enumerate(all_values, WARM_CALLS):
        before = clock()
        log(values, step)
        after = clock()
        taken.append(after - before)
        if after - begun > MOST_SECONDS:
            break
    end()
    seconds = clock() - begun
    points = SERIES * (len(taken) + WARM_CALLS)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return {
        "us": median(taken) * 1e6,
        "p99_us": quantiles(taken, n=100)[98] * 1e6 if len(taken) > 1 else taken[0] * 1e6,
        "points_per_second": SERIES * len(taken) / seconds,
        "bytes_per_point": size / points,
        "calls": len(taken),
    }


def log_until_killed(logger: Logger, folder: Path) -> None:
    """Log at the pace of a training, and report each call that has returned."""
    log, _ = logger.begin(folder)
    for step in range(10**9):
        log(values_at(step), step)
        os.write(1, b"ack %d\n" % step)
        time.sleep(PACE_SECONDS)


def measure_loss(name: str, folder: Path, calls: int) -> dict[str, int]:
    """Kill a process that logs; gives the calls that had returned and those that can be read."""
    words = [sys.executable, __file__, "--child", "kill", name, str(folder)]
    returned = 0
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith("ack "):  # loggers print too
                returned = int(line[4:]) + 1
            if returned == calls:
                time.sleep(random.random() * PACE_SECONDS)
                os.kill(child.pid, signal.SIGKILL)
                calls = -1
    end_session(child.pid)
    found = json.loads(ask_child("count", name, folder))
    return {"returned": returned, "found": min(found, returned)}


def end_session(group: int) -> None:
    """Let child processes of a killed process finish, then end them."""
    time.sleep(1.0)
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def ask_child(*words: object) -> str:
    """The last line that a process prints for one order."""
    done = subprocess.run(
        [sys.executable, __file__, "--child", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1][:300])
    return done.stdout.strip().splitlines()[-1]


def be_child(action: str, name: str, folder: Path, calls: int) -> None:
    """Carry out an order of ``ask_child``."""
    (logger,) = [one for one in LOGGERS if one.name == name]
    if action == "cost":
        print(json.dumps(measure_cost(logger, folder, calls)))
    elif action == "count":
        print(logger.count(folder))
    else:
        log_until_killed(logger, folder)
    sys.stdout.flush()
    os._exit(0)  # threads of loggers must not delay the end


def measure(names: list[str], args: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """All rounds, in changing order."""
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for number in range(args.rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            with tempfile.TemporaryDirectory(dir=args.dir) as place:
                cost, kill = Path(place, "cost"), Path(place, "kill")
                cost.mkdir()
                kill.mkdir()
                found = json.loads(ask_child("cost", name, cost, args.calls))
                found |= measure_loss(name, kill, random.randint(args.kill // 2, args.kill))
            results[name].append(found)
            print(f"  round {number + 1} {name}: {found['us']:.1f} us", file=sys.stderr)
    return results


def is_installed(package: str) -> bool:
    """Whether a package can be imported, by its name among the installed ones."""
    try:
        importlib.import_module(package)
    except ImportError:
        return False
    return True


def report(results: dict[str, list[dict[str, Any]]]) -> str:
    """The table, and whether the goals are met."""
    table = [("", "us/call", "p99", "points/s", "bytes/point", "lost", "of", "times")]
    middle = {
        name: {key: median(one[key] for one in runs) for key in runs[0]}
        for name, runs in results.items()
    }
    lost = {name: count_lost(runs) for name, runs in results.items()}
    own = middle[OWN]["us"]
    for name, one in sorted(middle.items(), key=lambda item: item[1]["us"]):
        total = SERIES * sum(run["returned"] for run in results[name])
        costs = (f"{one['us']:.1f}", f"{one['p99_us']:.1f}", f"{one['points_per_second']:,.0f}")
        left = (f"{one['bytes_per_point']:.1f}", str(lost[name]), str(total))
        table.append((name, *costs, *left, f"{one['us'] / own:.1f}"))
    cost = f"{own:.1f} us (goal {COST_GOAL_US:.0f} us: {verdict(own <= COST_GOAL_US)})"
    lines = [*lay_out(table), "", f"run.log of ten numbers: {cost}"]
    lines += [f"points lost: {lost[OWN]} (goal 0: {verdict(lost[OWN] == 0)})"]
    if REFERENCE in middle:
        ratio = middle[REFERENCE]["us"] / own
        goal = f"goal {RATIO_GOAL:.0f}: {verdict(ratio >= RATIO_GOAL)}"
        lines.append(f"{REFERENCE} / Epochal: {ratio:.1f} ({goal})")
    return "\n".join(lines)


def count_lost(runs: list[dict[str, Any]]) -> int:
    """Points of calls that had returned."""
    return SERIES * sum(one["returned"] - one["found"] for one in runs)


def lay_out(table: list[tuple[str, ...]]) -> list[str]:
    """Lines with names left-aligned and figures right-aligned."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        row[0].ljust(widths[0])
        + "".join(cell.rjust(width + 2) for cell, width in zip(row[1:], widths[1:], strict=True))
        for row in table
    ]


def verdict(is_met: bool) -> str:
    """The result in a word."""
    return "met" if is_met else "MISSED"


def versions(names: list[str]) -> str:
    """The machine, date and versions."""
    packages = dict.fromkeys(one.package for one in LOGGERS if one.name in names)
    found = []
    for package in packages:
        for name in (package, f"{package}-skinny"):
            try:
                found.append(f"{name} {importlib.metadata.version(name)}")
                break
            except importlib.metadata.PackageNotFoundError:
                continue
    return f"Python {platform.python_version()}, {', '.join(found)}; load {os.getloadavg()[0]:.1f}"


def parse() -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=3000)
    parser.add_argument("--kill", type=int, default=600, help="at most so many calls before a kill")
    parser.add_argument("--only", nargs="*", default=[], help="names of ways to log")
    parser.add_argument("--dir", type=Path, default=None, help="where files are written meanwhile")
    parser.add_argument("--child", nargs="+", default=[], help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    args = parse()
    if args.child:
        action, name, folder, *calls = args.child
        be_child(action, name, Path(folder), int(calls[0]) if calls else 0)
    wanted = [one for one in LOGGERS if not args.only or one.name in (OWN, *args.only)]
    names = [one.name for one in wanted if is_installed(one.package)]
    missing = [one.name for one in wanted if one.name not in names]
    results = measure(names, args)
    print(f"{SERIES} numbers a call, {args.rounds} rounds; {versions(names)}\n")
    print(report(results))
    if missing:
        print(f"not installed: {', '.join(missing)}")


if __name__ == "__main__":
    main()
