"""What a run writes to disk, and readers for it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from epochal.records.find import find_runs, read_run
    from epochal.records.folder.folder import RecordOptions, RunFolder, create_run_folder
    from epochal.records.folder.machine import describe_machine
    from epochal.records.folder.media import read_media
    from epochal.records.folder.provenance import collect_provenance, explain
    from epochal.records.folder.reader import Point, RunRecord, RunSummary
    from epochal.records.folder.writer import NullWriter, RunWriter, Writer
    from epochal.records.layout.run_status import Status
    from epochal.records.metrics.curve_cache import zoom
    from epochal.records.metrics.points import read_points, read_series

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

_HOMES = {
    "NullWriter": "epochal.records.folder.writer",
    "Point": "epochal.records.folder.reader",
    "RecordOptions": "epochal.records.folder.folder",
    "RunFolder": "epochal.records.folder.folder",
    "RunRecord": "epochal.records.folder.reader",
    "RunSummary": "epochal.records.folder.reader",
    "RunWriter": "epochal.records.folder.writer",
    "Status": "epochal.records.layout.run_status",
    "Writer": "epochal.records.folder.writer",
    "collect_provenance": "epochal.records.folder.provenance",
    "create_run_folder": "epochal.records.folder.folder",
    "describe_machine": "epochal.records.folder.machine",
    "explain": "epochal.records.folder.provenance",
    "find_runs": "epochal.records.find",
    "read_media": "epochal.records.folder.media",
    "read_points": "epochal.records.metrics.points",
    "read_run": "epochal.records.find",
    "read_series": "epochal.records.metrics.points",
    "zoom": "epochal.records.metrics.curve_cache",
}
"""The module of each name; none is imported before it is used, since verbs need few of them."""


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value
