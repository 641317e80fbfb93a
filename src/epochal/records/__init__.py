"""What a run leaves on disk, and how to read it."""

from epochal.records.folder.folder import RecordOptions, RunFolder, create_run_folder
from epochal.records.folder.provenance import collect_provenance, explain
from epochal.records.folder.record import Point, RunRecord, RunSummary, find_runs, read_run
from epochal.records.folder.writer import NullWriter, RunWriter, Status, Writer
from epochal.records.machine.machine import describe_machine
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
    "read_points",
    "read_run",
    "read_series",
]
