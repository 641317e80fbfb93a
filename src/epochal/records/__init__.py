"""What a run writes to disk, and readers for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.records.find import find_runs, read_run
from epochal.records.folder.folder import RecordOptions, RunFolder, create_run_folder
from epochal.records.folder.machine import describe_machine
from epochal.records.folder.media import read_media
from epochal.records.folder.provenance import collect_provenance, explain
from epochal.records.folder.reader import Point, RunRecord, RunSummary
from epochal.records.folder.writer import NullWriter, RunWriter, Status, Writer
from epochal.records.metrics.points import read_points, read_series

if TYPE_CHECKING:
    from epochal.records.metrics.curve_cache import zoom

__all__ = [
    "NullWriter",
    "Point",
    "RecordOptions",
    "RunFolder",
    "RunRecord",
    "RunSummary",
    "RunWriter",
    "Status",
    "Writer",
    "collect_provenance",
    "create_run_folder",
    "describe_machine",
    "explain",
    "find_runs",
    "read_media",
    "read_points",
    "read_run",
    "read_series",
    "zoom",
]


def __getattr__(name: str) -> object:
    if name != "zoom":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from epochal.records.metrics.curve_cache import zoom  # imports numpy

    return zoom
