"""DataSheet: records facts and samples of the data as media of a run."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any, final

from torch.utils.data import DataLoader
from typing_extensions import override

from epochal.config.bounds import AtLeast
from epochal.engine.feed.feed import named_loaders
from epochal.engine.feed.host_generators import HostGenerators
from epochal.engine.feed.sampling_order import fixed_order
from epochal.engine.interfaces.hook import LOG_PRIORITY, Hook
from epochal.engine.interfaces.splits import SPLITS
from epochal.engine.tracking.draw_probe import write_table
from epochal.inspect.sample_page import build_page, draw_sheet, list_facts, shorten
from epochal.inspect.split_report import inspect_split

if TYPE_CHECKING:
    from epochal.engine.interfaces.run import Run
    from epochal.engine.interfaces.task import Loader
    from epochal.inspect.split_report import SplitReport


@final
class DataSheet(Hook):
    """Records what ``epochal inspect data`` shows when a run starts; trackers get it too.

    For each split a table of its fields, one of its labels and a sheet of samples, and the whole
    page as HTML. The samples are read once more in the training; an iterator, which can be read
    only once, is left out.

    Args:
        samples: Most samples that are read of each split.
        show: Most samples that are shown of each split.
    """

    priority = LOG_PRIORITY

    def __init__(
        self,
        *,
        samples: Annotated[int, AtLeast(1)] = 200,
        show: Annotated[int, AtLeast(0)] = 24,
    ) -> None:
        self.samples = samples
        self.show = show

    @override
    def run_start(self, run: Run) -> None:
        """Read samples of each split, and record them."""
        if not run.is_main:
            return
        reports = [
            self._inspect(f"{split}/{name}" if name else split, loader)
            for split in SPLITS
            for name, loader in named_loaders(run.task, split).items()
            if not isinstance(loader, Iterator)
        ]
        for report in reports:
            _record(run, report)
        task: Any = run.task
        page = build_page(run.tag, reports, render=getattr(task, "render_sample", None))
        run.save_media("data/page", page, kind="text", suffix="html")

    def _inspect(self, name: str, loader: Loader) -> SplitReport:
        """Facts about a loader; neither its order nor the random numbers of the run change."""
        with ExitStack() as stack:
            stack.enter_context(HostGenerators().seeded(0))
            if isinstance(loader, DataLoader):
                stack.enter_context(fixed_order(loader, 0))
                copied = copy.copy(loader)
                copied.num_workers = 0  # workers of the training are not started yet
                loader = copied
            return inspect_split(name, loader, limit=self.samples, examples=self.show)


def _record(run: Run, report: SplitReport) -> None:
    run.save_media(f"data/{report.name}/fields", write_table(list_facts(report)), suffix="csv")
    for name, counts in report.labels.items():
        rows = {"value": list(counts), "samples": list(counts.values())}
        run.save_media(f"data/{report.name}/{name}", write_table(rows), suffix="csv")
    sheet = draw_sheet(report.examples)
    if sheet is not None:
        run.save_media(f"data/{report.name}/samples", sheet)
    elif report.examples:
        rows = {
            name: [shorten(sample.get(name)) for sample in report.examples]
            for name in report.fields
        }
        run.save_media(f"data/{report.name}/samples", write_table(rows), suffix="csv")
