"""Small runs with a record, and the points that trackers show."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epochal.engine.execute import execute
from epochal.engine.run.engine_run import Environment
from epochal.engine.runner import Train
from epochal.hooks.recording import Recording
from epochal.records.folder.folder import RecordOptions, create_run_folder
from epochal.records.folder.writer import RunWriter
from epochal.records.metrics.points import read_metric_points
from epochal.testing import short_options, tiny_run

if TYPE_CHECKING:
    from epochal.engine.result import RunResult

Series = dict[str, dict[int, float]]
"""Values by name and step."""


def carry_out_tracked(path: Path, *hooks: object, **options: Any) -> tuple[Path, RunResult]:
    """Train for twelve steps with a record and some hooks; gives its folder and how it ended."""
    folder = create_run_folder(RecordOptions(log_dir=path), project="tests", tag="tiny")
    writer = RunWriter(folder)
    writer.write_run({"attempts": [{"attempt": 0}]})
    run = tiny_run(
        Recording(every="2st"),
        *hooks,
        options=short_options(**options),
        setting=Environment(
            writer=writer,
            dir=folder.path,
            tag="tiny",
            facts={"attempt": 0},
            config={"desc": "to see", "project": "tests"},
        ),
    )
    try:
        return folder.path, execute(run, Train())
    finally:
        writer.close()


def recorded(folder: Path) -> Series:
    """The points of the record, without discarded attempts."""
    points = read_metric_points(folder)
    return {name: _series(points, name) for name in points.names.values()}


def _series(points: Any, name: str) -> dict[int, float]:
    steps, values = points.series(name)
    return dict(zip(steps.tolist(), values.tolist(), strict=True))


def events(folder: Path) -> Series:
    """The points in event files of TensorBoard; a repeated point is an error."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    shown = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    shown.Reload()
    found: Series = {}
    for name in shown.Tags()["scalars"]:
        points = [(one.step, one.value) for one in shown.Scalars(name)]
        assert len(points) == len(dict(points)), f"{name}: {points}"
        found[name] = dict(points)
    return found


@cache
def empty_database() -> Path:
    """An MLflow database with all its tables, which take seconds to create."""
    import mlflow

    path = Path(tempfile.mkdtemp()) / "mlflow.db"
    atexit.register(shutil.rmtree, path.parent)
    mlflow.MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


def only(series: Series, *names: str, steps: set[int] | None = None) -> Series:
    """A selection of series and steps."""
    return {
        name: {
            step: value for step, value in series[name].items() if steps is None or step in steps
        }
        for name in names
    }
