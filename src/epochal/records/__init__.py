"""What a run leaves on disk, and how to read it."""

from epochal.records.folder import RecordOptions, RunFolder, create_run_folder
from epochal.records.machine import describe_machine
from epochal.records.metrics import read_points, read_series
from epochal.records.provenance import collect_provenance, explain
from epochal.records.read import Point, RunRecord, RunSummary, find_runs, read_run
from epochal.records.writer import NullWriter, RunWriter, Status, Writer

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
