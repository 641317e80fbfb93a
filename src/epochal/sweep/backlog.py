"""Gives the trials of a sweep to a pool: proposes, prunes, repeats, and continues after a crash."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from dataclasses import replace
from typing import TYPE_CHECKING, final

from typing_extensions import override

from epochal.errors import PREEMPTED_EXIT_CODE, ConfigError
from epochal.launch.pool.backlog import Backlog, JobEnd, WaitingJob
from epochal.launch.pool.devices import ANY_DEVICE, DeviceRequest
from epochal.launch.queue.worker import can_auto_resume
from epochal.launch.restart_policy import FINAL_EXIT_CODES
from epochal.records.find import find_record
from epochal.records.folder.folder import Parent
from epochal.records.layout.stop_request import (
    clear_stop_request,
    read_stop_request,
    write_stop_request,
)
from epochal.sweep.pruning import EndedCurves
from epochal.sweep.sampling import Observation, create_sampler
from epochal.sweep.trials import (
    PRUNED,
    SEED,
    Trial,
    TrialRun,
    TrialState,
    read_trials,
)

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from epochal.sweep.pruning import Pruner
    from epochal.sweep.sampling import Sampler
    from epochal.sweep.settings import SweepSettings
    from epochal.sweep.sweep_folder import SweepFolder

logger = logging.getLogger(__name__)

MAX_STARTS = 3
"""How often the run of a trial is started, if its process is killed."""

_SUMMARY_SECONDS = 2.0


def create_next_sampler(settings: SweepSettings, trials: Collection[Trial]) -> Sampler:
    """A sampler that knows the trials so far, and proposes the next one."""
    sampler = create_sampler(
        settings.method,
        settings.space,
        is_allowed=settings.is_allowed,
        directions=[one.mode for one in settings.objectives],
        seed=settings.seed,
        observed={one.number: one.values for one in trials},
        has_constraints=bool(settings.metric_constraints),
    )
    for trial in trials:
        if _is_complete(trial, settings):
            sampler.tell(_observe(trial, settings))
        else:
            sampler.adopt(trial.number, trial.values)
    return sampler


def _observe(trial: Trial, settings: SweepSettings) -> Observation:
    return Observation(
        trial.number,
        trial.values,
        trial.get_objectives(settings),
        trial.get_violation(settings),
        is_pruned=trial.state == "pruned",
    )


def _is_complete(trial: Trial, settings: SweepSettings) -> bool:
    """Whether all repeats that the trial needs have ended."""
    if not trial.is_ended:
        return False
    return trial.state != "finished" or len(trial.runs) >= settings.repeats


@final
class SweepBacklog(Backlog):
    """The trials of a sweep.

    A trial exists when its job is written, and ends when its record says so. A new object for the
    same folder finds every trial again and continues those that did not end.

    Args:
        folder: The folder of the sweep; the caller holds its lock.
        preferred: The device that trials run on if it is free.
    """

    def __init__(self, folder: SweepFolder, *, preferred: str = "") -> None:
        self.folder = folder
        self._preferred = preferred
        clear_stop_request(folder.path)
        self.settings = folder.read_settings()
        self.trials = read_trials(folder, self.settings)
        self.stop_reason = ""
        """Why no more trials are proposed, apart from their number."""

        self.best: Trial | None = None
        """The best finished trial; None with several objectives."""

        self.ended: list[Trial] = []
        """Trials that ended while this object existed, in that order."""

        self._base = folder.read_base()
        self._stamp = folder.read_stamp()
        self._is_exhausted = False
        self._ready: deque[TrialRun] = deque()
        self._running: dict[int, TrialRun] = {}
        self._starts: dict[int, int] = {}
        self._failures, self._summarised = 0, 0.0
        self._told: set[int] = set()
        self._open: dict[int, Trial] = {}
        self._counts: Counter[TrialState] = Counter()
        self._sampler = self._create_sampler()
        self._advance_all()

    # Jobs for the pool

    @override
    def peek(self) -> DeviceRequest | None:
        self._reload_settings()
        if self.is_stopped or not (self._ready or self._may_propose()):
            return None
        return DeviceRequest(preferred=self._preferred, num_processes=self._base.num_processes)

    @override
    def take(self, request: DeviceRequest = ANY_DEVICE) -> WaitingJob | None:
        while (run := self._lock_next()) is not None:
            run.read(self.settings)  # it may have ended while an earlier process still had it
            if run.state == "waiting" and not self.folder.is_own_job(self._base, run.job):
                run.state, run.error = "failed", "its job was changed since it was proposed"
            if run.state == "waiting":
                return self._start(run)
            run.release()
            self._advance(self._trial_of(run))
        return None

    def _lock_next(self) -> TrialRun | None:
        """The next run, locked; its process inherits the lock.

        A run whose lock is taken still has a process, whose coordinator was killed.
        """
        for run in list(self._ready):
            if run.acquire():
                self._ready.remove(run)
                return run
        new = self._propose() if self._may_propose() else None
        if new is None or not new.acquire():
            return None
        self._ready.remove(new)
        return new

    def _start(self, run: TrialRun) -> WaitingJob:
        key = run.job.key
        run.state = "running"
        self._running[key] = run
        self._starts[key] = self._starts.get(key, 0) + 1
        return replace(self._plan_start(run), lock=run.lock)

    def _plan_start(self, run: TrialRun) -> WaitingJob:
        record = find_record(run.path)
        if record is not None and can_auto_resume(record):
            return replace(run.job, resume=record.path)
        run.job.run_file.unlink(missing_ok=True)
        run.path, run.stamp, run.curves, run.fold_curves = None, -1, (), ()
        if record is None:
            return run.job
        return replace(run.job, parent=Parent(record.path.name, "retried"))

    @override
    def begin(self, waiting: WaitingJob, device: str, environment: dict[str, str]) -> None:
        pass

    @override
    def end(self, waiting: WaitingJob, end: JobEnd) -> None:
        run = self._running.pop(waiting.key)
        run.path = end.run_dir or run.path
        run.state = "waiting"
        run.read(self.settings)
        if run.state == "waiting":
            self._judge_unfinished(run, end)
        self._advance(self._trial_of(run))
        if time.monotonic() - self._summarised > _SUMMARY_SECONDS:
            self.write_summary()

    def _judge_unfinished(self, run: TrialRun, end: JobEnd) -> None:
        """What to do with a run whose process ended, but not its training."""
        if end.was_stopped or end.code == PREEMPTED_EXIT_CODE:
            pass  # the sweep stops, or the machine is needed; it is continued
        elif end.code in FINAL_EXIT_CODES or self._starts.get(run.job.key, 0) >= MAX_STARTS:
            run.state, run.error = "failed", run.error or f"ended with code {end.code}"

    @override
    def is_done(self) -> bool:
        return self.is_stopped or (not self._ready and not self._may_propose())

    @property
    def is_stopped(self) -> bool:
        """Whether the sweep was asked to stop: its trials save and end, to be continued later."""
        return bool(read_stop_request(self.folder.path))

    @override
    def count_waiting(self) -> int:
        known = self.settings.num_trials
        more = 0 if known is None or self.stop_reason else max(known - len(self.trials), 0)
        return len(self._ready) + more

    @override
    def wants_drain(self) -> bool:
        return False

    @override
    def find_unwanted(self) -> Collection[int]:
        """The runs that are pruned; all, if the sweep is asked to stop."""
        if self.is_stopped:
            return list(self._running)
        pruner = self.settings.pruner
        if pruner is None:
            return ()
        before = {key: run.stamp for key, run in self._running.items()}
        for run in self._running.values():
            run.read(self.settings)
            run.state = "running"
        for key, run in self._running.items():
            if run.stamp != before[key] and run.path is not None and run.repeat == 0:
                self._prune(pruner, run, run.path)
        return [
            key
            for key, run in self._running.items()
            if run.path is not None and read_stop_request(run.path).startswith(PRUNED)
        ]

    def _prune(self, pruner: Pruner, run: TrialRun, path: Path) -> None:
        """Ask a run to stop if others were better; only the first of the repeats is judged."""
        own = run.number
        others = {
            number: one.runs[0].curves[0]
            for number, one in self._open.items()
            if number != own and one.runs[0].curves
        }
        mode = self.settings.objectives[0].mode
        reason = pruner.find_reason(
            run.curves[0], others, number=own, mode=mode, ended=self._ended_curves
        )
        if reason:
            write_stop_request(path, f"{PRUNED} ({reason})")

    # Trials

    def _trial_of(self, run: TrialRun) -> Trial:
        return self.trials[run.number]

    def _create_sampler(self) -> Sampler:
        trials, settings = self.trials.values(), self.settings
        self._told = {one.number for one in trials if _is_complete(one, settings)}
        return create_next_sampler(settings, trials)

    def _may_propose(self) -> bool:
        if self._is_exhausted or self.stop_reason:
            return False
        limit = self.settings.num_trials
        return limit is None or len(self.trials) < limit

    def _propose(self) -> TrialRun | None:
        number = next(reversed(self.trials), -1) + 1
        values = self._sampler.ask(number)
        if values is None:
            self._is_exhausted = True
            return None
        trial = self.trials[number] = self._open[number] = Trial(number, values)
        return self._add_run(trial)

    def _add_run(self, trial: Trial) -> TrialRun:
        repeat = len(trial.runs)
        values = dict(trial.values)
        if self.settings.repeats > 1:
            values[SEED] = self.settings.base_seed + repeat
        facts = {
            "sweep": self.folder.id,
            "number": trial.number,
            "repeat": repeat,
            "values": values,
        }
        run = TrialRun(self.folder.write_job(self._base, facts))  # type: ignore[arg-type]
        trial.runs.append(run)
        self._ready.append(run)
        return run

    def _advance_all(self) -> None:
        self.stop_reason, self._failures, self.best = "", 0, None
        self._counts.clear()
        self._open = dict(self.trials)
        self._ended_curves = EndedCurves()
        for trial in list(self.trials.values()):
            self._advance(trial)

    def _advance(self, trial: Trial) -> None:
        """Queue what a trial still needs; learn from it when it is complete."""
        if _is_complete(trial, self.settings):
            self._learn(trial)
            return
        waiting = [run for run in trial.runs if run.state == "waiting"]
        self._ready.extend(run for run in waiting if run not in self._ready)
        if trial.state == "finished":
            # The repeats start when the first run was good enough to reach its end.
            while len(trial.runs) < self.settings.repeats:
                self._add_run(trial)

    def _learn(self, trial: Trial) -> None:
        """Tell the sampler; stop proposing if the target is reached or too many failed."""
        if self._open.pop(trial.number, None) is None:
            return  # another repeat of it has failed before
        if trial.runs[0].curves:
            self._ended_curves.add(trial.number, trial.runs[0].curves[0])
        settings = self.settings
        observation = _observe(trial, settings)
        if trial.number not in self._told:
            self._told.add(trial.number)
            self._sampler.tell(observation)
            self.ended.append(trial)
        self._failures = self._failures + 1 if trial.state == "failed" else 0
        if self._failures >= settings.max_failures:
            self.stop_reason = f"the last {self._failures} trials failed: {trial.error}"
        self._counts[trial.state] += 1
        found = observation.objectives
        if not found or observation.violation or trial.state != "finished":
            return
        if settings.reaches_target(found[0]):
            self.stop_reason = f"trial {trial.number} reached {found[0]:g}"
        best = None if self.best is None else self.best.get_objectives(settings)
        if len(found) == 1 and (
            best is None or settings.objectives[0].is_better(found[0], best[0])
        ):
            self.best = trial

    def count_states(self) -> Counter[TrialState]:
        """How many trials are in each state; takes no longer in a long sweep."""
        return self._counts + Counter(one.state for one in self._open.values())

    def write_summary(self) -> None:
        """Write what lists of runs say about the sweep."""
        self._summarised = time.monotonic()
        best, metric = self.best, self.settings.objectives[0].metric
        planned = self.settings.num_planned
        found = None if best is None else best.get_objectives(self.settings)
        facts: dict[str, object] = {
            "trials": len(self.trials),
            "planned": None if planned is None else max(planned, len(self.trials)),
            "metric": metric,
            **{state: count for state, count in self._counts.items() if count},
        }
        if best is not None and found is not None:
            run = best.runs[0].path
            facts |= {"best": found[0], "trial": best.number, "run": run.name if run else ""}
        self.folder.write_summary(facts)

    def _reload_settings(self) -> None:
        stamp = self.folder.read_stamp()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self.settings = self.folder.read_settings()
        except ConfigError as error:
            logger.warning("the sweep continues unchanged: %s", error)
            return
        self._is_exhausted = False
        self._sampler = self._create_sampler()
        self._advance_all()
        logger.info("the sweep continues with its changed settings")
