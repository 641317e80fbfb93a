"""Reads sweeps for the web page."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

from epochal.errors import RecordError
from epochal.records.layout.run_status import ACTIVE_STATUSES
from epochal.records.layout.stop_request import STOP_REQUESTED, write_stop_request
from epochal.sweep.report.importance import measure_importance
from epochal.sweep.sweep_folder import list_sweeps
from epochal.sweep.trials import rank_trials, read_trials
from epochal.web.site.site import SweepReader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from epochal.sweep.settings import SweepSettings
    from epochal.sweep.sweep_folder import SweepFolder
    from epochal.sweep.trials import Trial


@final
class FolderSweepReader(SweepReader):
    """Reads the sweeps of a folder of runs."""

    def __init__(self, runs_dir: Path) -> None:
        self._runs_dir = runs_dir

    @override
    def summaries(self) -> list[dict[str, Any]]:
        return [_summarise(folder) for folder in list_sweeps(self._runs_dir)]

    @override
    def read(self, sweep_id: str) -> dict[str, Any] | None:
        folder = self._find(sweep_id)
        return None if folder is None else _read(folder)

    @override
    def stop(self, sweep_id: str) -> bool:
        folder = self._find(sweep_id)
        if folder is None or not folder.is_locked():
            return False
        folder.require_own()
        write_stop_request(folder.path, f"{STOP_REQUESTED}: on the web page")
        return True

    @override
    def add_trials(self, sweep_id: str, trials: int) -> bool:
        folder = self._find(sweep_id)
        if folder is None:
            return False
        folder.require_own()
        # More than there are, also if the last search was stopped early.
        settings = folder.read_settings()
        found = read_trials(folder, settings)
        points = replace(settings, num_trials=None).num_planned
        if points == sum(one.is_ended for one in found.values()):
            raise RecordError(
                f"{sweep_id}: every point of the grid was tried\n  start a sweep of a larger space"
            )
        known = max(settings.num_planned or 0, len(found))
        folder.change([f"sweep.trials={known + trials}"])
        return folder.is_locked()

    @override
    def measure_importance(
        self, keys: Sequence[str], values: Sequence[tuple[Mapping[str, Any], float]]
    ) -> dict[str, float]:
        return measure_importance(keys, values)

    def _find(self, sweep_id: str) -> SweepFolder | None:
        found = (one for one in list_sweeps(self._runs_dir) if one.id == sweep_id)
        return next(found, None)


def _summarise(folder: SweepFolder) -> dict[str, Any]:
    facts = folder.read_summary()
    names = ("trials", "planned", "metric", "best", "trial", "run", "pruned", "failed", "finished")
    begun = folder.read_facts().get("begun")
    known = {name: facts.get(name) for name in names}
    return {"id": folder.id, "begun": begun, "is_running": folder.is_locked(), **known}


def _read(folder: SweepFolder) -> dict[str, Any]:
    settings = folder.read_settings()
    trials = list(read_trials(folder, settings).values())
    keys = [one.key for one in settings.space.parameters]
    judged = [
        (one.values, found[0])
        for one in trials
        if one.state == "finished" and (found := one.get_objectives(settings))
    ]
    summary = _summarise(folder)
    states = Counter(one.state for one in trials)
    return {
        **summary,
        # The summary is written when a trial ends, and lacks trials that were added since.
        "planned": settings.num_planned,
        "trials": len(trials),
        **{name: states[name] for name in ("finished", "pruned", "failed")},
        "method": settings.method,
        "repeats": settings.repeats,
        "parameters": keys,
        "objectives": [{"metric": one.metric, "mode": one.mode} for one in settings.objectives],
        "best_trials": [one.number for one in rank_trials(trials, settings)],
        "importance": measure_importance(keys, judged),
        "items": [_to_json(one, settings) for one in trials],
    }


def _to_json(trial: Trial, settings: SweepSettings) -> dict[str, Any]:
    # Only the process of the sweep knows which trials it started; their records say the same.
    is_active = any(one.status in ACTIVE_STATUSES for one in trial.runs)
    return {
        "number": trial.number,
        "state": "running" if trial.state == "waiting" and is_active else trial.state,
        "values": dict(trial.values),
        "objectives": trial.get_objectives(settings),
        "runs": [one.path.name for one in trial.runs if one.path is not None],
        "error": trial.error,
    }
