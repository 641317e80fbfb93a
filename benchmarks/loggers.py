"""Loggers of ten numbers per step, and readers that count the calls they stored."""

from __future__ import annotations

import os
import sqlite3
import struct
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

from epochal.engine.create_run import create_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

OWN, REFERENCE = "Epochal", "TensorBoard"
SERIES = 10


class Logger(NamedTuple):
    """One logger."""

    name: str
    package: str
    """The package that it needs."""

    begin: Callable[[Path], tuple[Any, Callable[[], object]]]
    """Gives the function that logs, and the one that closes."""

    count: Callable[[Path], int]
    """The number of calls that can be read with all their points."""


def begin_epochal(folder: Path) -> tuple[Any, Callable[[], object]]:
    """``run.log`` of a real run, as hooks and users call it."""
    from epochal.engine.parts import Parts
    from epochal.engine.run.engine_run import Environment
    from epochal.records import RunFolder, RunWriter
    from epochal.testing import TinyModel, TinyTask

    writer = RunWriter(RunFolder(folder))
    run = create_run(
        Parts(task=TinyTask(), model=TinyModel()), environment=Environment(writer=writer)
    )
    return run.log, writer.close


def count_epochal(folder: Path) -> int:
    """Steps that have all their points."""
    from epochal.records import read_points

    return whole_steps(read_points(folder)["step"].tolist())


def whole_steps(steps: list[int]) -> int:
    """The number of steps that every series has."""
    return sum(seen == SERIES for seen in Counter(steps).values())


def begin_tensorboard(folder: Path) -> tuple[Any, Callable[[], object]]:
    """One call per number, as usual."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder))

    def log(values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step)

    return log, writer.close


def begin_tensorboard_together(folder: Path) -> tuple[Any, Callable[[], object]]:
    """The cheapest form: all numbers in one event."""
    from tensorboard.compat.proto.summary_pb2 import Summary
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder))

    def log(values: Mapping[str, float], step: int) -> None:
        found = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        writer.file_writer.add_summary(Summary(value=found), step)

    return log, writer.close


def count_tensorboard(folder: Path) -> int:
    """Steps that its own reader finds."""
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    steps = []
    for path in folder.glob("events.out.*"):
        for event in LegacyEventFileLoader(str(path)).Load():
            steps += [event.step] * len(event.summary.value)
    return whole_steps(steps)


def begin_wandb(folder: Path) -> tuple[Any, Callable[[], object]]:
    """Offline, so that nothing is sent."""
    os.environ |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DIR": str(folder)}
    os.environ |= {"WANDB_CACHE_DIR": str(folder), "WANDB_CONFIG_DIR": str(folder)}
    import wandb

    settings = wandb.Settings(x_disable_stats=True, console="off", save_code=False)
    run = wandb.init(project="cost", dir=str(folder), settings=settings)
    return lambda values, step: run.log(values, step=step), run.finish


def count_wandb(folder: Path) -> int:
    """History records in the file that would be uploaded later."""
    from wandb.proto import wandb_internal_pb2

    steps = []
    for path in folder.rglob("*.wandb"):
        for data in read_wandb(path.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            if record.WhichOneof("record_type") == "history":
                names = ["/".join(one.nested_key) or one.key for one in record.history.item]
                own = sum(name.startswith("metric_") for name in names)
                steps += [record.history.step.num] * own
    return whole_steps(steps)


def read_wandb(data: bytes, block: int = 32_768, head: int = 7) -> Iterator[bytes]:
    """The whole records of a W&B file: LevelDB's log format after a header of seven bytes."""
    position, parts = head, []
    while True:
        if block - position % block < head:
            position += block - position % block
        if position + head > len(data):
            return
        _, size, kind = struct.unpack_from("<IHB", data, position)
        position += head
        if kind == 0 or position + size > len(data):  # it was not finished
            return
        parts.append(data[position : position + size])
        position += size
        if kind in (1, 4):  # whole, or the last part
            yield b"".join(parts)
            parts = []


def begin_mlflow(folder: Path, *, synchronous: bool = True) -> tuple[Any, Callable[[], object]]:
    """Into its SQLite store."""
    import logging

    import mlflow

    logging.disable(logging.INFO)
    mlflow.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
    mlflow.set_experiment("cost")
    mlflow.start_run()

    def log(values: Mapping[str, float], step: int) -> None:
        mlflow.log_metrics(values, step=step, synchronous=synchronous)

    def end() -> None:
        if not synchronous:
            mlflow.flush_async_logging()
        mlflow.end_run()

    return log, end


def begin_mlflow_async(folder: Path) -> tuple[Any, Callable[[], object]]:
    """The same from its own thread."""
    return begin_mlflow(folder, synchronous=False)


def count_mlflow(folder: Path) -> int:
    """Rows of its table."""
    return whole_steps(select(folder / "mlflow.db", "SELECT step FROM metrics"))


def select(path: Path, question: str) -> list[int]:
    """The first column of a query; empty if there is no such file yet."""
    if not path.exists():
        return []
    with closing(sqlite3.connect(path)) as connection:
        return [row[0] for row in connection.execute(question)]


def begin_trackio(folder: Path) -> tuple[Any, Callable[[], object]]:
    """Into its SQLite file."""
    os.environ |= {"TRACKIO_DIR": str(folder), "HF_HUB_OFFLINE": "1"}
    import trackio

    run = trackio.init(
        project="cost", name="run", embed=False, auto_log_gpu=False, auto_log_cpu=False
    )
    return lambda values, step: run.log(values, step=step), trackio.finish


def count_trackio(folder: Path) -> int:
    """Rows of its table, each with all numbers of a step."""
    return sum(len(select(path, "SELECT step FROM metrics")) for path in folder.glob("cost*.db"))


LOGGERS = [
    Logger(OWN, "epochal", begin_epochal, count_epochal),
    Logger(REFERENCE, "tensorboard", begin_tensorboard, count_tensorboard),
    Logger("TensorBoard, one event", "tensorboard", begin_tensorboard_together, count_tensorboard),
    Logger("W&B offline", "wandb", begin_wandb, count_wandb),
    Logger("MLflow", "mlflow", begin_mlflow, count_mlflow),
    Logger("MLflow, asynchronous", "mlflow", begin_mlflow_async, count_mlflow),
    Logger("trackio", "trackio", begin_trackio, count_trackio),
]
