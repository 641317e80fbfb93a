"""Experiments with trackers: killed and resumed, they show every point once."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import forked
from epochal.engine.tracking import tracker
from epochal.records.folder.media import read_media
from small_project import Command, run_folders, write
from tracked import Series, empty_database, events, recorded

if TYPE_CHECKING:
    from collections.abc import Iterable

pytestmark = pytest.mark.filterwarnings("ignore")  # warnings of the packages are not ours

DYING = """
import os
import time
import epochal as ep
from epochal.engine.state.saver import Saver

class Dying(ep.Hook):
    '''Kills the process after the step that the environment names, once a thread has begun.'''
    def step_end(self, run):
        if os.environ.get("DIES_AT") == str(run.step):
            run.find_part(Saver).finish(run)
            os._exit(9)
        while "DIES_AT" in os.environ and run.step == 8 and not (run.dir / "points.csv").exists():
            time.sleep(0.01)

    def epoch_end(self, run, split, metrics):
        if split == "train":
            run.save_media("note", f"epoch {run.epoch_number}")
"""

FRESH = """
import sys
import epochal

def look(when):
    found = {"tensorboard", "wandb", "mlflow"} & set(sys.modules)
    assert not found, f"{when}: imported {found}"

def type_(*words):
    try:
        code = main(words)
    except SystemExit as error:
        code = error.code
    assert not code, f"{words}: exit code {code}"
    look(" ".join(words))

look("import epochal")
from epochal.cli import main
HOOKS = "hooks=[{type: TensorBoard}, {type: WandB}, {type: MLflow}]"
type_("check", "config.yaml", HOOKS)
type_("run", "config.yaml", "--device", "cpu", "log.tensorboard=false")
type_("run", "config.yaml", "--device", "cpu", "--no-file", HOOKS)
"""

SPOILED = """
import torch
from shop.parts import Points

class Spoiled(Points):
    '''One of its batches is not finite, once.'''
    def __init__(self):
        super().__init__()
        self.seen = 0

    def batch_loss(self, out, batch):
        losses = super().batch_loss(out, batch)
        self.seen += 1
        if self.seen != 9:
            return losses
        loss, count = losses["loss"]
        return {"loss": (loss * torch.nan, count)}

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass  # it stays behind
"""

CONFIG = """
$BASE: base.yaml
tag: shop
task: {type: shop.parts.Points}
model: {type: shop.parts.Net}
train: {for: 3ep}
monitor: +val/acc
log: {record_every: 2st}
checkpoint: {every: 4st}
hooks:
  - {type: shop.dying.Dying}
  - {type: TensorBoard, every: 4st}
  - {type: CsvLog, every: 2st}
  - {type: JsonLines, every: 2st}
  - {type: MLflow, uri: "sqlite:///mlflow.db", every: 2st}
"""


@pytest.fixture
def dying(shop: Path) -> Path:
    """A project whose runs kill themselves on request."""
    write(shop / "shop" / "dying.py", DYING)
    write(shop / "config.yaml", CONFIG)
    return shop


def once(points: Iterable[tuple[str, int, float]]) -> Series:
    """Points by name and step; a repeated point is an error."""
    series: Series = {}
    for name, step, value in points:
        assert step not in series.setdefault(name, {}), f"{name} at {step} comes twice"
        series[name][step] = value
    return series


def in_csv(folder: Path) -> Series:
    with (folder / "points.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return once((row["name"], int(row["step"]), float(row["value"])) for row in rows)


def in_json(folder: Path) -> Series:
    lines = [json.loads(line) for line in (folder / "points.jsonl").read_text().splitlines()]
    return once(
        (name, line["step"], value)
        for line in lines
        for name, value in line.items()
        if name not in ("step", "time")
    )


def find_in_mlflow(folder: Path) -> tuple[Any, Any]:
    """The client, and the only run that it has."""
    import mlflow

    client: Any = mlflow.MlflowClient("sqlite:///mlflow.db")
    found = client.search_runs(
        [one.experiment_id for one in client.search_experiments()],
        f"tags.`epochal.run` = '{folder.name}'",
    )
    (run,) = found
    return client, run


def artifacts(folder: Path, path: str) -> list[str]:
    client, run = find_in_mlflow(folder)
    return [one.path.rpartition("/")[2] for one in client.list_artifacts(run.info.run_id, path)]


def texts(folder: Path, name: str) -> list[tuple[int, bytes]]:
    """The text that TensorBoard shows at each step."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    shown = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    shown.Reload()
    return [(one.step, one.tensor_proto.string_val[0]) for one in shown.Tensors(name)]


def in_mlflow(folder: Path) -> Series:
    client, run = find_in_mlflow(folder)
    return once(
        (name, point.step, point.value)
        for name in run.data.metrics
        for point in client.get_metric_history(run.info.run_id, name)
    )


def assert_shown(folder: Path) -> None:
    record = recorded(folder)
    assert {"train/loss", "lr", "val/acc", "train/epoch/loss"} <= set(record)
    assert in_csv(folder) == record
    assert in_json(folder) == record
    assert in_mlflow(folder) == record
    shown = events(folder / "tensorboard")
    assert list(shown["lr"]) == [4, 8, 12, 16]
    for name, points in shown.items():
        assert all(np.float32(record[name][step]) == value for step, value in points.items()), name
    assert list(shown["val/acc"]) == list(record["val/acc"])
    media = [(one.step, one.path) for one in read_media(folder)]
    assert [path.read_text() for _, path in media] == ["epoch 1", "epoch 2", "epoch 3"]
    assert texts(folder / "tensorboard", "note/text") == [
        (step, path.read_bytes()) for step, path in media
    ]
    assert artifacts(folder, "media/text") == [path.name for _, path in media]


@pytest.mark.long
def test_resumed_run_sends_every_point_to_trackers_once(dying: Path, epochal: Command) -> None:
    shutil.copy(empty_database(), "mlflow.db")
    environment = {**os.environ, "DIES_AT": "11"}
    done = forked.run("-m", "epochal", "run", "config.yaml", "--device", "cpu", env=environment)
    assert done.returncode == 9, done.stderr
    (folder,) = run_folders(Path())
    assert in_csv(folder)["lr"]  # points that still waited in the thread are lost
    done = epochal("resume", folder.name, "--device", "cpu")
    assert done.code == 0, done.err
    assert_shown(folder)


def test_rolled_back_steps_are_not_shown_by_trackers(shop: Path, epochal: Command) -> None:
    write(shop / "shop" / "spoiled.py", SPOILED)
    done = epochal(
        *("run", "config.yaml", "--device", "cpu", "train.for=3ep", "checkpoint.every=2st"),
        *("task={type: shop.spoiled.Spoiled}", "engine.on_nonfinite=rollback"),
        *("log.record_every=1st", "hooks=[{type: CsvLog, every: 1st}, {type: TensorBoard}]"),
    )
    assert done.code == 0, done.err
    assert "rolling back from step" in done.out
    (folder,) = run_folders(Path())
    assert in_csv(folder) == recorded(folder)
    assert events(folder / "tensorboard")


def test_tensorboard_is_on_by_default_and_can_be_turned_off(shop: Path, epochal: Command) -> None:
    done = epochal("run", "config.yaml", "--device", "cpu")
    assert done.code == 0, done.err
    (folder,) = run_folders(Path())
    assert f"trackers: TensorBoard every 100st: `tensorboard --logdir {folder}" in done.out
    assert "val/acc" in events(folder / "tensorboard")
    done = epochal("run", "config.yaml", "--device", "cpu", "log.tensorboard=false")
    assert "trackers:" not in done.out
    assert not (run_folders(Path())[-1] / "tensorboard").exists()


def test_tracker_packages_are_imported_only_for_writing(shop: Path) -> None:
    write(shop / "fresh.py", FRESH)
    done = subprocess.run(
        [sys.executable, "fresh.py"], check=False, capture_output=True, text=True, cwd=shop
    )
    assert done.returncode == 0, done.stderr


def test_plan_shows_trackers_and_missing_packages(
    shop: Path, epochal: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracker, "is_installed", lambda package: package != "wandb")
    hooks = "hooks=[{type: WandB, project: p, every: 1ep}, {type: TensorBoard, every: 10st}]"
    done = epochal("plan", "config.yaml", "--device", "cpu", hooks)
    assert (
        "trackers WandB every 1ep: project p, online (wandb is not installed); "
        "TensorBoard every 10st: `tensorboard --logdir tensorboard`"
    ) in done.out


def test_wrong_option_of_a_tracker_is_found_by_check(shop: Path, epochal: Command) -> None:
    done = epochal("check", "config.yaml", "hooks=[{type: WandB, mode: later, projekt: p}]")
    assert done.code == 78
    assert "hooks.0.mode" in done.out + done.err
    assert "did you mean 'project'?" in done.out + done.err
