"""What all answers share: the folder of the runs, their index, sessions, and allowed names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, final

from epochal.records.folder.reader import read_folder
from epochal.records.metrics.curve_memory import CurveMemory
from epochal.web.site.api_error import not_found

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from epochal.records.folder.reader import RunRecord
    from epochal.web.site.launches import Launches
    from epochal.web.site.run_index import RunIndex
    from epochal.web.site.sessions import WebSessions
    from epochal.web.site.static_files import StaticFiles


class QueueWorker(Protocol):
    """Runs the jobs of the queue beside the server."""

    @property
    def is_alive(self) -> bool:
        """Whether it still runs."""

    def start_sweep(self, sweep_id: str) -> None:
        """Run the trials of a sweep that nothing runs now."""


class SweepReader(Protocol):
    """Reads and changes sweeps; the command line gives the real one, which needs more packages."""

    def summaries(self) -> Sequence[Mapping[str, Any]]:
        """Each sweep in a few facts, the newest last."""

    def read(self, sweep_id: str) -> Mapping[str, Any] | None:
        """One sweep with its trials, if there is one."""

    def stop(self, sweep_id: str) -> bool:
        """Ask a sweep to stop; False if nothing runs it, RecordError if it is not this user's."""

    def add_trials(self, sweep_id: str, trials: int) -> bool:
        """Search with more trials; returns whether a process runs the sweep now."""

    def measure_importance(
        self, keys: Sequence[str], values: Sequence[tuple[Mapping[str, Any], float]]
    ) -> Mapping[str, float]:
        """How much each of some settings decided about a number."""


@final
@dataclass(frozen=True, kw_only=True)
class Site:
    """One server and the runs it shows."""

    index: RunIndex
    sessions: WebSessions
    static: StaticFiles
    hosts: frozenset[str]
    """The values of the header Host that are answered."""

    port: int
    launches: Launches | None = None
    """The experiments that may be launched; None if launching is off."""

    sweeps: SweepReader | None = None
    worker: QueueWorker | None = None
    """What runs the jobs of the queue; None if this server does not."""

    curves: CurveMemory = field(default_factory=CurveMemory)
    project: str = ""
    version: str = ""

    @property
    def cookie_name(self) -> str:
        """Servers on other ports of this machine have other cookies."""
        return f"epochal-{self.port}"

    def folder(self, run_id: str) -> Path:
        """The folder of a run; ApiError if there is none."""
        found = self.index.find(run_id)
        if found is None:
            raise not_found()
        return found

    def folders(self, run_ids: Sequence[str]) -> dict[str, Path]:
        """The folders of several runs, in this order; ApiError if one is unknown."""
        found = self.index.find_all(run_ids)
        if not {*run_ids} <= found.keys():
            raise not_found()
        return {one: found[one] for one in run_ids}

    def record(self, run_id: str) -> RunRecord:
        """The record of a run; ApiError if there is none."""
        return read_folder(self.folder(run_id))
