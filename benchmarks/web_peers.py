"""Writes runs through the writers of TensorBoard, MLflow and trackio, for benchmarks/web_page.py.

    python benchmarks/web_peers.py NAME FOLDER RUNS POINTS TABLE_RUNS COLUMNS

It prints ``ready``, and for each line of its input it logs one more point to each run, and prints
``logged``. It runs in an environment of its own, which has the trackers and not Epochal.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

METRIC = "train/loss"
START = 1_700_000_000
LIVE_VALUE = 40.0


def value_at(run: int, step: int) -> float:
    """The value of a run at a step; the last ones of all runs differ."""
    return 2.0 / (1 + step / 1000) + (step % 97) / 1000 + run / 64


def write_tensorboard(
    folder: Path, runs: int, points: int, table: int, columns: int
) -> Callable[[int], None]:
    """One file of events per run; it has no table of runs."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    files, writers = [], []

    def log(run: int, step: int, value: float) -> None:
        summary = Summary(value=[Summary.Value(tag=METRIC, simple_value=value)])
        event = Event(wall_time=START + step, step=step, summary=summary)
        writers[run].write(event.SerializeToString())

    for run in range(runs):
        path = folder / f"run{run:02}" / f"events.out.tfevents.{START}.{run}"
        path.parent.mkdir(parents=True)
        files.append(path.open("wb"))
        writers.append(RecordWriter(files[-1]))
        writers[-1].write(Event(file_version="brain.Event:2", wall_time=START).SerializeToString())
        for step in range(points):
            log(run, step, value_at(run, step))
        files[-1].flush()

    def add_point(step: int) -> None:
        for run in range(runs):
            log(run, step, LIVE_VALUE)
            files[run].flush()

    return add_point


def write_mlflow(
    folder: Path, runs: int, points: int, table: int, columns: int
) -> Callable[[int], None]:
    """Two experiments in a database: long curves, and many runs with settings."""
    from mlflow.entities import Metric, Param
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    curves = client.create_experiment("curves", artifact_location=str(folder / "artifacts"))
    ids = []
    for run in range(runs):
        ids.append(client.create_run(curves, run_name=f"run{run:02}").info.run_id)
        for first in range(0, points, 1000):
            steps = range(first, min(points, first + 1000))
            found = [Metric(METRIC, value_at(run, i), (START + i) * 1000, i) for i in steps]
            client.log_batch(ids[-1], metrics=found)
    many = client.create_experiment("many", artifact_location=str(folder / "artifacts"))
    for run in range(table):
        made = client.create_run(many, run_name=f"run{run:03}").info.run_id
        params = [Param(f"setting{i}", str(run * i % 512)) for i in range(columns)]
        client.log_batch(made, params=params, metrics=[Metric(METRIC, value_at(run, 0), START, 0)])
        client.set_terminated(made)

    def add_point(step: int) -> None:
        for one in ids:
            client.log_metric(one, METRIC, LIVE_VALUE, (START + step) * 1000, step)

    return add_point


def write_trackio(
    folder: Path, runs: int, points: int, table: int, columns: int
) -> Callable[[int], None]:
    """Two projects: long curves, and many runs with settings."""
    os.environ["TRACKIO_DIR"] = str(folder)
    import trackio

    def begin(project: str, name: str, config: dict[str, Any]) -> None:
        trackio.init(project=project, name=name, config=config, embed=False, resume="allow")

    for run in range(runs):
        begin("curves", f"run{run:02}", {})
        for step in range(points):
            trackio.log({METRIC: value_at(run, step)}, step=step)
        trackio.finish()
    for run in range(table):
        begin("many", f"run{run:03}", {f"setting{i}": run * i % 512 for i in range(columns)})
        trackio.log({METRIC: value_at(run, 0)}, step=0)
        trackio.finish()

    def add_point(step: int) -> None:
        for run in range(runs):
            begin("curves", f"run{run:02}", {})
            trackio.log({METRIC: LIVE_VALUE}, step=step)
            trackio.finish()

    return add_point


WRITERS = {
    "TensorBoard": write_tensorboard,
    "MLflow": write_mlflow,
    "trackio": write_trackio,
}


def main() -> None:
    """Write, then add points on request."""
    name, folder, *sizes = sys.argv[1:]
    runs, points, table, columns = map(int, sizes)
    Path(folder).mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    with redirect_stdout(sys.stderr):
        add_point = WRITERS[name](Path(folder), runs, points, table, columns)
    print(f"ready {time.perf_counter() - begin:.1f}", flush=True)
    for extra, _ in enumerate(sys.stdin):
        with redirect_stdout(sys.stderr):
            add_point(points + extra)
        print("logged", flush=True)
    os._exit(0)  # threads of trackers must not delay the end


if __name__ == "__main__":
    main()
