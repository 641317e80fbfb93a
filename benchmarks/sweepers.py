"""The same trials by Epochal, Optuna, Ray Tune and Hydra's joblib launcher.

    python benchmarks/sweepers.py NAME COUNT WORKERS [MODULE]

Prints as JSON the seconds of start and search, and the value of each trial. A trial computes one
number from one parameter; with ``MODULE`` its process imports that first, as a training does.
"""

from __future__ import annotations

import importlib
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from epochal.launch.pool.executor import JobStart

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

Values = dict[float, float]
"""The result of each trial by its parameter."""


def make_grid(count: int) -> list[float]:
    """The parameter of each trial."""
    return [round(0.1 * 100 ** (i / max(count - 1, 1)), 6) for i in range(count)]


def evaluate(parameter: float, module: str) -> float:
    """One trial."""
    if module:
        importlib.import_module(module)
    return math.log10(parameter) ** 2


Search = Callable[[], Values]


def prepare_epochal(
    folder: Path, grid: Sequence[float], workers: int, module: str, *, is_forked: bool = True
) -> Search:
    """A sweep in a pool: a process and a record for each trial, from a fork server or new."""
    from epochal.launch.pool.local_executor import LocalExecutor
    from epochal.launch.pool.pool import Pool
    from epochal.sweep.backlog import SweepBacklog
    from pooled import make_leases
    from swept import new_sweep

    paths = (str(ROOT / "benchmarks"), str(ROOT / "tests"), os.environ.get("PYTHONPATH", ""))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    imports = ["swept", *filter(None, [module])] if is_forked else []

    def format_command(start: JobStart) -> list[str]:
        return [sys.executable, "-P", "-m", "sweepers", "--trial", str(start.file), module]

    def search() -> Values:
        sweep = new_sweep(folder, "  method: grid\n", space=f"  space: {{optim.lr: {grid}}}\n")
        backlog = SweepBacklog(sweep)
        leases = make_leases(folder, per_device=workers)
        Pool(backlog, LocalExecutor(format_command, imports=imports), leases).run()
        found: Values = {}
        for trial in backlog.trials.values():
            objectives = trial.get_objectives(backlog.settings)
            assert objectives is not None, trial.error
            found[float(trial.values["optim.lr"])] = objectives[0]
        return found

    return search


def prepare_epochal_new(folder: Path, grid: Sequence[float], workers: int, module: str) -> Search:
    """A sweep whose trials are all new processes."""
    return prepare_epochal(folder, grid, workers, module, is_forked=False)


def run_own_trial(file: Path, module: str) -> None:
    """The process of a trial of Epochal: writes the record of the run."""
    import swept
    from epochal.launch.jobs.frozen_job import read_job
    from epochal.launch.pool.backlog import WaitingJob

    job = read_job(file)
    facts = job.choices["trial"]
    swept._numbers = itertools.count(facts["number"])  # it names the folder of the run
    value = evaluate(facts["values"]["optim.lr"], module)
    swept.leave_run(WaitingJob(key=0, job=job, file=file), [value])


def prepare_optuna(folder: Path, grid: Sequence[float], workers: int, module: str) -> Search:
    """One trial after the other in this process, nothing stored."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def search() -> Values:
        study = optuna.create_study(sampler=optuna.samplers.GridSampler({"lr": list(grid)}, seed=0))
        study.optimize(lambda trial: evaluate(trial.suggest_float("lr", 0.1, 10.0), module))
        return {one.params["lr"]: float(one.value or 0.0) for one in study.trials}

    return search


def prepare_ray(
    folder: Path, grid: Sequence[float], workers: int, module: str, *, reuses: bool = False
) -> Search:
    """Ray Tune: an actor, that is a process, for each trial, or one for each worker."""
    os.environ |= {"RAY_AIR_NEW_OUTPUT": "0", "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1"}
    import ray
    from ray import tune

    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level="ERROR")

    def trainable(config: dict[str, Any]) -> None:
        if config["module"]:
            importlib.import_module(config["module"])
        tune.report({"value": math.log10(config["lr"]) ** 2})

    def search() -> Values:
        tuner = tune.Tuner(
            trainable,
            param_space={"lr": tune.grid_search(list(grid)), "module": module},
            tune_config=tune.TuneConfig(max_concurrent_trials=workers, reuse_actors=reuses),
            run_config=tune.RunConfig(storage_path=str(folder), verbose=0),
        )
        found = tuner.fit()
        assert not found.errors, found.errors
        return {one.config["lr"]: one.metrics["value"] for one in found}

    return search


def prepare_ray_reusing(folder: Path, grid: Sequence[float], workers: int, module: str) -> Search:
    """Ray Tune with ``reuse_actors``."""
    return prepare_ray(folder, grid, workers, module, reuses=True)


def prepare_hydra(folder: Path, grid: Sequence[float], workers: int, module: str) -> Search:
    """A Hydra multirun with the joblib launcher: a folder for each trial, shared processes."""
    import hydra
    from hydra.core.config_store import ConfigStore
    from hydra.core.hydra_config import HydraConfig

    ConfigStore.instance().store("experiment", {"lr": 0.0, "module": module})

    @hydra.main(version_base=None, config_name="experiment")
    def experiment(config: Any) -> None:  # noqa: ANN401 - a config of OmegaConf
        if config.module:
            importlib.import_module(config.module)
        result = {"lr": config.lr, "value": math.log10(config.lr) ** 2}
        place = Path(HydraConfig.get().runtime.output_dir) / "result.json"
        place.write_text(json.dumps(result))

    def search() -> Values:
        words = [f"lr={','.join(map(str, grid))}", f"hydra.sweep.dir={folder}"]
        launcher = ["hydra/launcher=joblib", f"hydra.launcher.n_jobs={workers}"]
        sys.argv = [__file__, "--multirun", *words, *launcher]
        experiment()
        read = [json.loads(path.read_text()) for path in folder.glob("*/result.json")]
        return {one["lr"]: one["value"] for one in read}

    return search


SWEEPERS = {
    "Epochal": prepare_epochal,
    "Epochal, new processes": prepare_epochal_new,
    "Optuna, in one process": prepare_optuna,
    "Ray Tune": prepare_ray,
    "Ray Tune, reused actors": prepare_ray_reusing,
    "Hydra with joblib": prepare_hydra,
}


def measure(name: str, count: int, workers: int, module: str) -> dict[str, Any]:
    """Seconds of start and search in a process of its own, and the value of each trial."""
    command = [sys.executable, __file__, name, str(count), str(workers), module]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{name}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Run the trials of one contender."""
    if sys.argv[1] == "--trial":
        run_own_trial(Path(sys.argv[2]), sys.argv[3])
        return
    name, grid, workers = sys.argv[1], make_grid(int(sys.argv[2])), int(sys.argv[3])
    module = sys.argv[4] if len(sys.argv) > 4 else ""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CONFIG_HOME"] = f"{folder}/home"
        place = Path(folder) / "sweep"
        place.mkdir()
        with redirect_stdout(sys.stderr):
            begun = time.perf_counter()
            search = SWEEPERS[name](place, grid, workers, module)
            started = time.perf_counter()
            values = search()
            ended = time.perf_counter()
        result = {"start": started - begun, "search": ended - started}
        print(json.dumps(result | {"values": sorted(values.items())}))


if __name__ == "__main__":
    main()
