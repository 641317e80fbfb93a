"""Reads samples of every split of a config, and describes them on a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from typing_extensions import Unpack

from epochal import durable
from epochal.engine.feed.feed import named_loaders
from epochal.engine.interfaces.splits import SPLITS
from epochal.errors import DataError
from epochal.experiment.experiment import load_experiment
from epochal.experiment.run_experiment import build_unrecorded_run
from epochal.inspect.sample_page import build_page, find_picture, list_warnings
from epochal.inspect.split_report import SplitReport, inspect_split
from epochal.records.folder.media import encode_png

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from epochal.experiment.config.choices import Choices


class DataInspection(NamedTuple):
    """What was found, and how to look at it."""

    title: str
    reports: list[SplitReport]
    page: str
    """One HTML file that opens without a network."""

    @property
    def warnings(self) -> list[str]:
        """What is probably a mistake in the data."""
        return list_warnings(self.reports)

    def write(self, folder: Path) -> Path:
        """Write the page and the pictures of samples as PNG files; returns the page."""
        folder.mkdir(parents=True, exist_ok=True)
        for report in self.reports:
            for number, sample in enumerate(report.examples):
                for name, value in sample.items():
                    picture = find_picture(value)
                    if picture is not None:
                        stem = f"{report.name}-{number}-{name}".replace("/", "_")
                        durable.write_bytes(folder / f"{stem}.png", encode_png(picture))
        page = folder / "data.html"
        durable.write_text(page, self.page)
        return page


def inspect_file(
    path: Path,
    *,
    limit: int,
    examples: int,
    overrides: Sequence[str] = (),
    **choices: Unpack[Choices],
) -> DataInspection:
    """Read up to ``limit`` samples of each split of a config; nothing is trained."""
    experiment = load_experiment(path, overrides=overrides, choices=choices)
    run, _, _ = build_unrecorded_run(experiment, experiment.inputs)
    task: Any = run.task
    spec = getattr(task, "batch_spec", None)
    reports = [
        inspect_split(
            f"{split}/{name}" if name else split,
            loader,
            limit=limit,
            examples=examples,
            spec=spec,
        )
        for split in SPLITS
        for name, loader in named_loaders(task, split).items()
    ]
    if not reports:
        raise DataError("data: the task has no loader\n  write a section data, or set loaders")
    render = getattr(task, "render_sample", None)
    return DataInspection(run.tag, reports, build_page(run.tag, reports, render=render))
