"""Sweeps: trials per minute beside Optuna alone, time per trial in a long sweep, quality of TPE.

    python benchmarks/sweeps.py [speed] [long] [quality] [processes] [peers]

``speed`` and ``long`` run trials that only write a record, so that the cost of the sweep itself is
seen; ``processes`` starts a real training process for each; ``peers`` runs trials that only compute
a number, in the processes of each contender. Prints tables; writes nothing.
"""

from __future__ import annotations

import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import optuna  # noqa: E402

from epochal.cli.pages.sweep_page import SweepPage  # noqa: E402
from epochal.launch.pool.backlog import WaitingJob  # noqa: E402
from epochal.launch.pool.executor import Executor, JobHandle, JobStart  # noqa: E402
from epochal.launch.pool.pool import Pool  # noqa: E402
from epochal.sweep.backlog import SweepBacklog  # noqa: E402
from epochal.sweep.sampling import Observation, OptunaSampler  # noqa: E402
from epochal.sweep.space import Space, SweepParameter, ValueRange  # noqa: E402
from pooled import ScriptedHandle, make_leases  # noqa: E402
from small_project import write_shop  # noqa: E402
from sweepers import SWEEPERS, evaluate, make_grid, measure  # noqa: E402
from swept import leave_run, new_sweep  # noqa: E402

Function = Callable[[Mapping[str, float]], float]

NUM_SPEED = 200
NUM_LONG = 10_000
NUM_QUALITY = 60
SEEDS = range(100, 140)
NUM_PROCESSES = 6
NUM_PEERS = 40
NUM_WORKERS = 2


class InstantExecutor(Executor):
    """Each trial writes a record with one value, in this process."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.times: list[float] = []
        self._clock = clock

    def describe(self, start: JobStart) -> str:
        """Nothing is started."""
        return ""

    def submit(self, start: JobStart) -> JobHandle:
        """Write the record of the trial."""
        value = math.log10(start.job.choices["trial"]["values"]["optim.lr"]) ** 2
        leave_run(WaitingJob(key=0, job=start.job, file=start.file), [value])
        self.times.append(self._clock())
        return ScriptedHandle(0)

    def close(self) -> None:
        """Nothing is kept."""


def sweep_in_process(
    method: str, count: int, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """When each trial of a sweep without processes began."""
    with tempfile.TemporaryDirectory() as name, redirect_stdout(StringIO()):
        folder = new_sweep(Path(name), f"  method: {method}\n  trials: {count}\n")
        executor = InstantExecutor(clock)
        begun = clock()
        backlog, leases = SweepBacklog(folder), make_leases(Path(name))
        with SweepPage(backlog) as page:
            Pool(backlog, executor, leases, show=page.show, tick_seconds=0.0).run()
        return [begun, *executor.times]


def optuna_alone(method: str, count: int) -> float:
    """Seconds of Optuna with an objective that returns at once."""
    samplers: dict[str, Any] = {
        "random": optuna.samplers.RandomSampler,
        "tpe": optuna.samplers.TPESampler,
    }
    study = optuna.create_study(sampler=samplers[method](seed=0))
    begun = time.perf_counter()
    study.optimize(
        lambda trial: math.log10(trial.suggest_float("lr", 0.1, 10.0, log=True)) ** 2, count
    )
    return time.perf_counter() - begun


def measure_speed() -> None:
    """Trials per minute without any process."""
    print(f"\n{NUM_SPEED} trials that do nothing, one after the other, trials per minute")
    for method in ("random", "tpe"):
        times = sweep_in_process(method, NUM_SPEED)
        alone = optuna_alone(method, NUM_SPEED)
        ours = 60 * NUM_SPEED / (times[-1] - times[0])
        rates = f"{ours:>10,.0f}   Optuna in memory {60 * NUM_SPEED / alone:>10,.0f}"
        print(f"{method:<8} sweep with records {rates}")


def measure_long() -> None:
    """Time of the CPU per trial at the beginning and at the end of a long sweep."""
    times = sweep_in_process("random", NUM_LONG, time.process_time)
    steps = [1000 * (b - a) for a, b in pairwise(times)]
    first, last = steps[:1000], steps[-1000:]
    print(f"\n{NUM_LONG:,} trials, random, milliseconds of the CPU per trial (median, mean)")
    for name, part in (("first 1,000", first), ("last 1,000", last)):
        print(f"{name:<12}{statistics.median(part):>8.2f}{statistics.fmean(part):>8.2f}")


FUNCTIONS: dict[str, tuple[Function, tuple[float, float], int]] = {
    "sphere": (lambda v: sum(x * x for x in v.values()), (-5.0, 5.0), 4),
    "branin": (lambda v: _branin(*v.values()), (-5.0, 15.0), 2),
    "rosenbrock": (lambda v: _rosenbrock([*v.values()]), (-2.0, 2.0), 3),
    "rastrigin": (
        lambda v: sum(10 + x * x - 10 * math.cos(2 * math.pi * x) for x in v.values()),
        (-5.12, 5.12),
        3,
    ),
}


def _branin(x: float, y: float) -> float:
    b, c, t = 5.1 / (4 * math.pi**2), 5 / math.pi, 1 / (8 * math.pi)
    return (y - b * x * x + c * x - 6) ** 2 + 10 * (1 - t) * math.cos(x) + 10


def _rosenbrock(x: list[float]) -> float:
    return sum(100 * (b - a * a) ** 2 + (1 - a) ** 2 for a, b in pairwise(x))


def search(function: Function, ends: tuple[float, float], size: int, seed: int) -> float:
    """The best value that our TPE finds."""
    space = Space(tuple(SweepParameter(f"x{i}", ValueRange(*ends)) for i in range(size)))
    sampler = OptunaSampler("tpe", space, lambda values: True, directions=["min"], seed=seed)
    best = math.inf
    for number in range(NUM_QUALITY):
        values = sampler.ask(number)
        assert values is not None
        found = function(values)
        best = min(best, found)
        sampler.tell(Observation(number, values, (found,)))
    return best


def search_alone(function: Function, ends: tuple[float, float], size: int, seed: int) -> float:
    """The best value that Optuna finds alone."""
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))

    def objective(trial: optuna.Trial) -> float:
        return function({f"x{i}": trial.suggest_float(f"x{i}", *ends) for i in range(size)})

    study.optimize(objective, NUM_QUALITY)
    return study.best_value


def measure_quality() -> None:
    """The best value after so many trials, over several seeds."""
    print(
        f"\nbest value after {NUM_QUALITY} trials of TPE, median (quartiles) of {len(SEEDS)} seeds"
    )
    for name, (function, ends, size) in FUNCTIONS.items():
        line = f"{name:<12}"
        for who, find in (("ours", search), ("Optuna", search_alone)):
            found = [find(function, ends, size, seed) for seed in SEEDS]
            low, middle, high = statistics.quantiles(found, n=4)
            line += f"  {who} {middle:8.3f} ({low:.3f} to {high:.3f})"
        print(line)


def measure_processes() -> None:
    """Trials per minute with a training process for each, and what its start costs."""
    with tempfile.TemporaryDirectory() as name:
        shop = write_shop(Path(name) / "project")
        (shop / "sweep.yaml").write_text(
            "$BASE: config.yaml\ntrain: {for: 2st}\nsweep:\n  method: random\n"
            f"  trials: {NUM_PROCESSES}\n  space: {{optim.lr: {{min: 0.01, max: 0.1}}}}\n"
        )
        environment = {**os.environ, "EPOCHAL_LEASES_DIR": str(Path(name) / "leases" / "here")}
        print(f"\n{NUM_PROCESSES} trials of two training steps, a process for each")
        print(f"{'':<42}{'seconds':>8}{'of the CPU':>12}{'trials per minute':>20}")

        def show(title: str, words: list[str], count: int = 0) -> None:
            before, begun = count_cpu_seconds(), time.perf_counter()
            command = [sys.executable, *words]
            subprocess.run(command, cwd=shop, env=environment, capture_output=True, check=True)
            seconds, used = time.perf_counter() - begun, count_cpu_seconds() - before
            rate = f"{60 * count / seconds:>20.1f}" if count else ""
            print(f"{title:<42}{seconds:>8.2f}{used:>12.2f}{rate}")

        show("import torch", ["-c", "import torch"])
        show("epochal run config.yaml --fast", ["-m", "epochal", "run", "config.yaml", "--fast"])
        sweep = ["sweep", "sweep.yaml", "--devices", "cpu", "--per-device"]
        # Without the modules to import once, each trial is a new process.
        new = (
            "import epochal.launch.pool.local_executor as executor; executor.JOB_IMPORTS = (); "
            "import sys; from epochal.cli import main; sys.exit(main())"
        )
        for at_once in ("1", "2"):
            words = [*sweep, at_once]
            show(f"sweep, {at_once} at once", ["-m", "epochal", *words], NUM_PROCESSES)
            show(f"sweep, {at_once} at once, new processes", ["-c", new, *words], NUM_PROCESSES)


def count_cpu_seconds() -> float:
    """Seconds of the CPU that processes started here have used until they ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure_peers() -> None:
    """Trials per minute of contenders that do the same, and what their processes cost."""
    print(f"\n{NUM_PEERS} trials that compute one number, {NUM_WORKERS} at once")
    for words in ("pass", "import torch"):
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-c", words], check=True)
        print(f"start of a process: {words:<30}{time.perf_counter() - begun:>8.2f} s")
    expected = [[one, evaluate(one, "")] for one in make_grid(NUM_PEERS)]
    for module in ("", "torch"):
        print(f"\n{'each process imports torch' if module else 'nothing imported':<28}", end="")
        print(f"{'start':>8}{'search':>9}{'trials per minute':>20}")
        for name in SWEEPERS:
            found = measure(name, NUM_PEERS, NUM_WORKERS, module)
            assert found["values"] == expected, name
            rate = 60 * NUM_PEERS / found["search"]
            print(f"{name:<28}{found['start']:>6.2f} s{found['search']:>7.2f} s{rate:>20,.0f}")


PARTS = {
    "speed": measure_speed,
    "long": measure_long,
    "quality": measure_quality,
    "processes": measure_processes,
    "peers": measure_peers,
}


def main() -> None:
    """Measure the parts that the command line names, or all."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with tempfile.TemporaryDirectory() as home:
        os.environ["XDG_CONFIG_HOME"] = home
        for name in sys.argv[1:] or PARTS:
            PARTS[name]()


if __name__ == "__main__":
    main()
