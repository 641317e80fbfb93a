"""A file in a run folder that asks the run to save and stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal import durable
from epochal.records.layout.process import utc_now

if TYPE_CHECKING:
    from pathlib import Path

STOP_FILE = "stop.json"
STOP_REQUESTED = "stop requested"
"""The reason of a user who does not give one; other reasons of users begin with it."""


def write_stop_request(folder: Path, reason: str) -> None:
    """Ask the run in a folder to stop; the first request counts."""
    if not read_stop_request(folder):
        durable.write_json(folder / STOP_FILE, {"reason": reason, "time": utc_now()})


def read_stop_request(folder: Path) -> str:
    """The reason for which the run in a folder was asked to stop; empty if it was not."""
    reason = durable.find_object(folder / STOP_FILE).get("reason")
    return reason if isinstance(reason, str) else ""


def clear_stop_request(folder: Path) -> None:
    """Delete a request; a resumed run does this."""
    (folder / STOP_FILE).unlink(missing_ok=True)
