"""Made-up runs: rows in the tables of an index, and run folders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from epochal.records import RecordOptions, RunWriter, create_run_folder
from epochal.records.index.index_database import RUN_COLUMNS

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    from epochal.records import Status

NUMBERS = ("seconds", "step", "epoch", "attempt", "rollbacks", "seed", "best")


def fetch(connection: sqlite3.Connection) -> Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]:
    """A function that queries like an index."""
    return lambda question, values: connection.execute(question, values).fetchall()


def add_run(
    connection: sqlite3.Connection,
    run: str,
    *,
    params: dict[str, object] | None = None,
    metrics: dict[str, tuple[float | None, float | None, float | None]] | None = None,
    **facts: object,
) -> int:
    """Insert one run into the tables; gives its id."""
    unknown = {name: None if name in NUMBERS[:1] + NUMBERS[5:] else "" for name in RUN_COLUMNS}
    zeros = dict.fromkeys((*NUMBERS[1:5], "archived"), 0)
    row = {**unknown, **zeros, "path": f"store/shop/{run}", "run": run, **facts}
    marks = ", ".join("?" * len(row))
    names = ", ".join(row)
    cursor = connection.execute(f"INSERT INTO runs ({names}) VALUES ({marks})", [*row.values()])
    for key, value in (params or {}).items():
        is_number = isinstance(value, int | float)
        text = None if value is None else str(value)
        text = text.lower() if isinstance(value, bool) and text else text
        number = float(value) if is_number else None  # type: ignore[arg-type]
        connection.execute(
            "INSERT INTO params VALUES (?, ?, ?, ?, 0)", (cursor.lastrowid, key, text, number)
        )
    for name, (last, low, high) in (metrics or {}).items():
        connection.execute(
            "INSERT INTO metrics VALUES (?, ?, ?, ?, ?, 7, 3)",
            (cursor.lastrowid, name, last, low, high),
        )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


class Indexed:
    """An index that has only tables."""

    root = Path("runs")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.fetch = fetch(connection)

    def search(self, words: str) -> list[int]:
        """The runs with a word in their tag."""
        rows = self.fetch("SELECT id FROM runs WHERE instr(tag, ?)", (words,))
        return [row[0] for row in rows]


def record_run(
    root: Path,
    *,
    tag: str = "shop",
    lr: float = 0.1,
    seed: int = 0,
    accuracy: float = 0.5,
    status: Status = "finished",
    **facts: Any,
) -> Path:
    """Write a made-up run folder with a config, a metric and a checkpoint."""
    writer = RunWriter(create_run_folder(RecordOptions(log_dir=root), project="store", tag=tag))
    config = {"tag": tag, "seed": seed, "optim.lr": lr, "optim.type": "SGD", "monitor": "+val/acc"}
    provenance = {key: [{"value": value, "layer": "file"}] for key, value in config.items()}
    writer.write_status("running")
    writer.write_config([], "", "yaml", provenance)
    known = {"project": "store", "tag": tag, "seed": seed, "runner": "train", "monitor": "val/acc"}
    writer.write_run({**known, **facts})
    for step in range(3):
        writer.log({"val/acc": accuracy - 0.1 * (2 - step)}, step)
    (writer.path / "checkpoints" / "final.safetensors").write_bytes(b"x" * 100_000)
    if status != "running":
        writer.write_result({"metrics": {"val/acc": accuracy}, "best": accuracy, "seconds": 1.5})
        writer.write_status(status, step=2, epoch=1)
    writer.close()
    return writer.path
