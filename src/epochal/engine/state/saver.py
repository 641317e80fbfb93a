"""Saves checkpoints while a run trains: copied between steps, written by a thread."""

from __future__ import annotations

import logging
import shutil
import threading
from collections import deque
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from epochal.checkpoint import (
    SerializedState,
    prune_checkpoints,
    remove_leftovers,
    snapshot_to_host,
    write_checkpoint,
)
from epochal.checkpoint.checkpoint_folder import no_files
from epochal.checkpoint.serialize import serialize_state
from epochal.engine.interfaces.average import AVERAGED_SPLIT
from epochal.engine.process.signals import is_interrupted_or_preempted
from epochal.engine.state.rank_state import collect_rank_state
from epochal.engine.state.run_state import collect_state, find_stateless_hooks
from epochal.engine.state.shard_exchange import follow_write, leading_write
from epochal.engine.step.finite_weights import has_finite_weights
from epochal.engine.step.nonfinite_watch import NonfiniteWatch
from epochal.errors import EpochalError
from epochal.records.folder.checkpoint_manifests import MANIFEST_FIELDS, CheckpointManifest
from epochal.records.metrics.time_spent import SAVING
from epochal.text.formatting import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from epochal.engine.run.engine_run import EngineRun

logger = logging.getLogger(__name__)

END_REASON = "end"
IN_MEMORY = Path("memory")
"""The path in manifests of states that are kept in memory."""

_REPORTED_SECONDS = 1.0

SavePosition = tuple[int, int, bool, tuple[tuple[str, int], ...]]
"""Step, epoch, whether inside it, and the step of the last evaluation of each split."""


def save_if_requested(run: EngineRun) -> None:
    """Save if a save was requested or the run ends here; called at the end of a boundary.

    After the last step of an epoch, the save waits for the end of the epoch, which follows.
    """
    is_ended_from_outside = is_interrupted_or_preempted(run)
    ends_epoch_next = run.is_in_epoch and run.feed.is_complete and not is_ended_from_outside
    if run.stop_reason and run.diverged_at is None and not ends_epoch_next:
        run.stage_progress.before_last_save(run)
    saver = run.find_part(Saver)
    if saver is None:
        run.save_reasons = ""
        return
    saver.report_finished_write(run)
    if run.diverged_at is not None:
        run.save_reasons = ""  # the run leaves this state
        return
    if is_ended_from_outside and saver.saved_at is None and run.step == run.first_step:
        run.save_reasons = ""  # it starts again, also with what comes before the first step
        return
    if run.stop_reason and saver.saved_at != read_save_position(run):
        run.request_save(END_REASON)
    if run.save_reasons and not ends_epoch_next:
        reason, run.save_reasons = run.save_reasons, ""
        saver.save(run, reason)


@final
@dataclass(slots=True)
class _WriteJob:
    """One checkpoint that is being written."""

    step: int
    reason: str
    thread: threading.Thread | None = None
    path: Path | None = None
    error: BaseException | None = None
    notes: tuple[str, ...] = ()


@final
class Saver:
    """Takes snapshots of a run and writes them while it trains, one at a time.

    Args:
        folder: Where checkpoints are written; None writes none.
        name: Returns the name of a checkpoint of the run.
        keep_last: How many of the newest are kept; None for all.
        keep_best: How many of the best by the monitor are kept.
        is_strict: End the run if one cannot be written, instead of trying the next one.
        serves_rollback: The run may roll back to its states: without a folder the newest are
            kept in memory.
        is_writer: Whether this process writes; others give the main one what only they have.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        name: Callable[[EngineRun], str],
        keep_last: int | None = 1,
        keep_best: int = 1,
        is_strict: bool = False,
        serves_rollback: bool = False,
        is_writer: bool = True,
    ) -> None:
        self.folder = folder
        self._is_writer = is_writer
        self.serves_rollback = serves_rollback
        self.states_in_memory: deque[tuple[CheckpointManifest, SerializedState]] = deque(
            maxlen=max(1, keep_last or 1)
        )
        """States that a run without a folder can roll back to, the newest last."""

        self.saved_at: SavePosition | None = None
        """The position of the latest snapshot."""

        self.resumed_from: CheckpointManifest | None = None
        """The checkpoint from which this attempt resumed; None if it started at step 0."""

        self._name = name
        self._keep_last, self._keep_best = keep_last, keep_best
        self._is_strict = is_strict
        self._job: _WriteJob | None = None
        self._has_warned = self._has_checked = False

    @property
    def is_writing(self) -> bool:
        """Whether a checkpoint is being written."""
        job = self._job
        return job is not None and job.thread is not None and job.thread.is_alive()

    def check_can_save(self, run: EngineRun) -> None:
        """Serialize the state once, so that what cannot be saved fails early; log its size."""
        if self.folder is None or self._has_checked or not self._is_writer:
            return
        self._has_checked = True
        with run.clock.times.measuring(SAVING):
            self._wait(run)  # what is being written is not a leftover
            size = _size_of(_serialize_run(run), run.world.world_size)
            remove_leftovers(self.folder)
            self._report_disk_space(size)
        for name in find_stateless_hooks(run):
            logger.warning(
                "%s holds tensors that a resumed run loses; give it state_dict and load_state_dict",
                name,
            )

    def save(self, run: EngineRun, reason: str) -> None:
        """Take a snapshot now and start to write it; waits for the one before.

        A run that has diverged is not saved, so that the last finite checkpoint stays.
        """
        if self.folder is None and not self.serves_rollback:
            return
        run.writer.require_lease()
        with run.clock.times.measuring(SAVING):
            if self._has_diverged(run):
                return
            if not run.world.is_single:
                run.rank_states = tuple(run.gather_by_data(collect_rank_state(run)))
            self.saved_at = read_save_position(run)
            is_sharded = run.strategy.is_sharded
            if self.folder is not None and not self._is_writer and not is_sharded:
                return
            self._wait(run)
            taken = _serialize_run(run, is_copied=True)
            self.saved_at = read_save_position(run)
            if self.folder is None:
                manifest = CheckpointManifest(
                    path=IN_MEMORY, files={}, **build_manifest_facts(run, reason)
                )
                self.states_in_memory.append((manifest, taken))
                return
            if not self._is_writer:
                follow_write(run.world, taken.shards)
                return
            job = _WriteJob(run.step, reason)
            arguments = (job, taken, self._name(run), build_manifest_facts(run, reason), run)
            if is_sharded:  # processes can only wait for each other in their main threads
                self._job = job
                self._write(*arguments)
                self.report_finished_write(run)
                return
            job.thread = threading.Thread(
                target=self._write, args=arguments, name="checkpoint", daemon=True
            )
            self._job = job
            job.thread.start()

    def report_finished_write(self, run: EngineRun) -> None:
        """Report a checkpoint that has been written to record and hooks.

        Raises the error of one that could not be written, if the run must end.
        """
        job = self._job
        if job is None or (job.thread is not None and job.thread.is_alive()):
            return
        self._job = None
        if job.error is not None:
            self._fail(run, job, job.error)
            return
        assert job.path is not None
        for note in job.notes:
            logger.warning("%s", note)
        run.writer.event("checkpoint_saved", step=job.step, name=job.path.name, reason=job.reason)
        run.fire("checkpoint_saved", job.path)

    def finish(self, run: EngineRun) -> None:
        """Wait for the checkpoint that is being written; called at the end of the run."""
        with run.clock.times.measuring(SAVING):
            self._wait(run)

    def _has_diverged(self, run: EngineRun) -> bool:
        """Whether the run has diverged; logs that once."""
        watch = run.find_part(NonfiniteWatch)
        if watch is not None:
            watch.check_now(run)
        if watch is not None and watch.has_diverged:
            level, why = logging.INFO, "its updates were skipped"
        elif not has_finite_weights(run):
            level, why = logging.WARNING, "its weights are not finite; earlier checkpoints stay"
        else:
            return False
        if not self._has_warned:
            self._has_warned = True
            logger.log(level, "step %d is not saved: %s", run.step, why)
        return True

    def _wait(self, run: EngineRun) -> None:
        job = self._job
        if job is None or job.thread is None:
            return
        start = run.clock.now()
        job.thread.join()
        waited = run.clock.now() - start
        if waited > _REPORTED_SECONDS:
            logger.info("waited %.1f s for the checkpoint of step %d", waited, job.step)
        self.report_finished_write(run)

    def _write(
        self,
        job: _WriteJob,
        taken: SerializedState,
        name: str,
        facts: dict[str, Any],
        run: EngineRun,
    ) -> None:
        """Write a snapshot; changes nothing in the run.

        Runs in a thread if no other process takes part.
        """
        assert self.folder is not None
        is_sharded = run.strategy.is_sharded
        with_others = (
            leading_write(run.world, taken.shards) if is_sharded else nullcontext(no_files)
        )
        confirm = run.writer.require_lease  # the folder may be lost while this is written
        try:
            with with_others as add_files:
                run.writer.sync()  # the checkpoint counts the points, so they must be on disk
                confirm()
                job.path = write_checkpoint(
                    self.folder, name, taken, facts, confirm=confirm, add_files=add_files
                ).path
        except BaseException as error:
            job.error = error
        else:
            job.notes = self._prune()
        finally:
            run.plan.wake()

    def _prune(self) -> tuple[str, ...]:
        assert self.folder is not None
        try:
            prune_checkpoints(
                self.folder,
                keep_last=self._keep_last,
                keep_best=self._keep_best,
                keep_regular=self.serves_rollback,
            )
        except (EpochalError, OSError) as error:
            return (f"old checkpoints could not be removed: {error}",)
        return ()

    def _fail(self, run: EngineRun, job: _WriteJob, error: BaseException) -> None:
        run.writer.event("checkpoint_failed", step=job.step, message=str(error))
        is_expected = isinstance(error, EpochalError | OSError)
        if self._is_strict or not is_expected or "preempted" in job.reason:
            raise error
        if run.world.is_single:  # several processes must agree on when to save
            self.saved_at = None
        logger.error("the checkpoint of step %d was not written: %s", job.step, error)

    def _report_disk_space(self, size: int) -> None:
        assert self.folder is not None
        folder = next(one for one in (self.folder, *self.folder.parents) if one.exists())
        free = shutil.disk_usage(folder).free
        what = f"checkpoints take {format_bytes(size)} each"
        if self._keep_last is None:
            what, needed = f"{what}, and all are kept", 2 * size
        else:
            # One more: a new one is written before an old one is deleted.
            count = self._keep_last + self._keep_best + 1 + self.serves_rollback
            what, needed = f"{what}, {count} at most", count * size
        if needed > free:
            logger.warning(
                "%s: %s has %s free; make room, or keep fewer with checkpoint.keep_last",
                what,
                folder,
                format_bytes(free),
            )
        else:
            logger.info("%s; %s free", what, format_bytes(free))


def build_manifest_facts(run: EngineRun, reason: str) -> dict[str, Any]:
    """The fields of the manifest of a checkpoint at the run's position."""
    facts: dict[str, Any] = {
        "step": run.step,
        "epoch": run.epoch,
        "samples": run.samples,
        "reason": reason,
        "metrics": fresh_metrics(run),
        "choices": {name: value for name, value in run.choices.items() if _is_plain(value)},
    }
    if run.monitor is not None:
        facts |= {"monitor": run.monitor.metric, "mode": run.monitor.mode}
    return facts | {name: value for name, value in run.facts.items() if name in MANIFEST_FIELDS}


def fresh_metrics(run: EngineRun) -> dict[str, float]:
    """The metrics that were measured at this step, with these weights."""
    fresh = {split for split, step in run.evaluated_at.items() if step == run.step}
    if "val" in fresh:
        fresh.add(AVERAGED_SPLIT)
    if not run.is_in_epoch and run.step > 0:
        fresh.add("train")
    return {name: value for name, value in run.latest.items() if name.split("/")[0] in fresh}


def _serialize_run(run: EngineRun, *, is_copied: bool = False) -> SerializedState:
    """The state of a run, serialized; with ``is_copied``, later steps do not change it."""
    if run.meter.deliver():
        run.events.has_run_user_code = True
    state = collect_state(run)
    return snapshot_to_host(state) if is_copied else serialize_state(state)


def _size_of(taken: SerializedState, world_size: int) -> int:
    """The bytes of a checkpoint; processes have about equal parts."""
    own = sum(tensor.nbytes for tensor in taken.shards.values())
    return sum(tensor.nbytes for tensor in taken.tensors.values()) + own * world_size


def read_save_position(run: EngineRun) -> SavePosition:
    """Where a run is: an evaluation changes its state, but not its step."""
    return run.step, run.epoch, run.is_in_epoch, tuple(sorted(run.evaluated_at.items()))


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str)
