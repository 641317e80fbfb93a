"""Run folders as a run writes them, for tests of the index."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from epochal.records import RecordOptions, RunWriter, create_run_folder
from epochal.records.layout import run_folders

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from epochal.records import Status


def origin(value: object, layer: str = "file") -> list[dict[str, object]]:
    return [{"value": value, "source": "a.yaml", "line": 1, "column": 1, "layer": layer}]


def make_run(
    root: Path,
    *,
    tag: str = "a",
    desc: str = "",
    lr: float = 0.1,
    seed: int = 0,
    loss: float = 0.5,
    status: Status | None = "finished",
    **facts: Any,  # whatever else run.json holds
) -> Path:
    """One run with a page, a config, a metric and, unless ``status`` is None, an end."""
    writer = RunWriter(create_run_folder(RecordOptions(log_dir=root), project="p", tag=tag))
    writer.write_status("running")
    writer.write_readme(tag, desc)
    provenance = {
        "tag": origin(tag),
        "seed": origin(seed),
        "optim.lr": origin(lr),
        "optim.momentum": origin(0.9, "default"),
        "model.widths.0": origin(64),
        "model.widths.1": origin(32, "default"),
    }
    writer.write_config([], "", "yaml", provenance)
    writer.write_observed({})
    writer.write_run({"project": "p", "tag": tag, "seed": seed, "monitor": "val/loss", **facts})
    for step in range(3):
        writer.log({"val/loss": loss + 2 - step}, step)
    if status is not None:
        writer.write_result({"metrics": {"val/loss": loss}, "best": loss, "seconds": 1.5})
        writer.write_status(status, step=2, epoch=1)
    writer.close()
    return writer.path


def age_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take folders for old enough to be trusted as they are, without waiting for that."""
    monkeypatch.setattr(run_folders, "_RECENT_SECONDS", 0.0)


def touch_later(path: Path) -> None:
    """Give a folder another time than it had, however coarse the clock of the disk is."""
    time = path.stat().st_mtime_ns + 10_000_000
    os.utime(path, ns=(time, time))
