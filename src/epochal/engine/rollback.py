"""Rollback: after gradients that are not finite, continues from an earlier state on later data."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from epochal.checkpoint import deserialize_state, mark_as_damaged, read_checkpoint
from epochal.engine.interfaces.run import ResumePoint
from epochal.engine.process.signals import is_interrupted_or_preempted
from epochal.engine.resume import resume_from
from epochal.engine.stages.transition import restore_stage_optimizer
from epochal.engine.state.changed_attributes import ChangedAttributes
from epochal.engine.state.saver import Saver
from epochal.engine.step.nonfinite_watch import NonfiniteWatch, stop_diverged
from epochal.errors import CheckpointError
from epochal.records.folder.checkpoint_manifests import find_checkpoints
from epochal.records.metrics.time_spent import parse_time_spent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from epochal.engine.measure.meter import Window
    from epochal.engine.run.engine_run import BadStep, EngineRun
    from epochal.records.folder.checkpoint_manifests import CheckpointManifest

logger = logging.getLogger(__name__)

MAX_ROLLBACKS = 3
"""Rollbacks of one run; after them it ends as diverged."""


def roll_back(
    run: EngineRun, epoch_means: Window, start_epoch: Callable[[EngineRun], object]
) -> bool:
    """Roll back if one of the last steps was bad; returns whether the run did.

    Everything is restored to the newest state before the first bad step, except the data
    position: the run continues after the bad batch and skips all batches since that state. On
    disk only the list of attempts changes: a run that is killed before it saves again resumes
    from the same state and computes the same bits.
    """
    watch = run.find_part(NonfiniteWatch)
    if watch is not None:
        watch.check_now(run)
    place = run.diverged_at
    if place is None or is_interrupted_or_preempted(run):
        return False
    # Reset before reading the state: a signal that comes while it is read must count.
    run.diverged_at, run.stop_reason, run.stop_status, run.save_reasons = None, "", "", ""
    point = _find_point(run, place)
    if point is None:
        return False
    _begin_attempt(run, point)
    known = (*run.rollbacks, _note(run, place, point))
    _restore(run, place, point, epoch_means, start_epoch)
    run.rollbacks = known
    return True


def _find_point(run: EngineRun, place: BadStep) -> ResumePoint | None:
    """The newest usable state; without one, or after too many rollbacks, the run stops."""
    saver = run.find_part(Saver)
    is_on_disk = saver is not None and saver.folder is not None
    if is_on_disk and not run.world.is_single:  # only the main process knows what is written
        point, why = _search_point(run, place) if run.is_main else (None, "")
        path, why = run.world.broadcast((None if point is None else point.path, why))
        if path is not None and point is None:
            state, manifest = read_checkpoint(path, keeps_shards=True, is_verified=True)
            point = ResumePoint(state=state, manifest=manifest, path=path, has_ended=True)
    else:
        point, why = _search_point(run, place)
    if point is None:
        what = f"the gradient of step {place.step} is not finite, and {why}"
        stop_diverged(run, f"{what}; the weights before that step are kept")
    return point


def _search_point(run: EngineRun, place: BadStep) -> tuple[ResumePoint | None, str]:
    """The newest usable state, or why there is none."""
    saver = run.find_part(Saver)
    if len(run.rollbacks) >= MAX_ROLLBACKS:
        why = f"the run rolled back {MAX_ROLLBACKS} times already"
    elif saver is None:
        why = "the run saves no checkpoints"
    else:
        for point in _iter_resume_points(run, saver, place):
            if run.stage_progress.matches_checkpoint(
                point.state["stage"]
            ):  # else its parts may differ
                return point, ""
        why = "there is no earlier state of this stage whose weights are finite"
    return None, why


def _iter_resume_points(run: EngineRun, saver: Saver, place: BadStep) -> Iterator[ResumePoint]:
    """States before a step, the newest first; checkpoints of interruptions come last."""
    if saver.folder is None:
        for manifest, taken in reversed(saver.states_in_memory):
            copies = {name: tensor.clone() for name, tensor in taken.tensors.items()}
            state = deserialize_state(taken.plain, copies, taken.shards)
            yield ResumePoint(state=state, manifest=manifest, path=manifest.path, has_ended=True)
        return
    saver.finish(run)
    found = [
        one
        for one in reversed(find_checkpoints(saver.folder))
        if one.step < place.step and _is_of_this_run(run, saver, one)
    ]
    for manifest in sorted(found, key=lambda one: not one.is_regular):
        try:
            state, _ = read_checkpoint(manifest.path, keeps_shards=True)
        except CheckpointError as error:
            aside = mark_as_damaged(manifest.path).name
            logger.warning("%s; renamed to %s", str(error).splitlines()[0], aside)
            continue
        yield ResumePoint(state=state, manifest=manifest, path=manifest.path, has_ended=True)


def _is_of_this_run(run: EngineRun, saver: Saver, manifest: CheckpointManifest) -> bool:
    """Whether a checkpoint belongs to this attempt or to one that it continues."""
    if manifest.attempt == run.facts.get("attempt", 0):
        return True
    origin = saver.resumed_from
    return (
        origin is not None and manifest.attempt <= origin.attempt and manifest.step <= origin.step
    )


def _begin_attempt(run: EngineRun, point: ResumePoint) -> None:
    """Start a new attempt in the record, which replaces everything after the state."""
    manifest = point.manifest
    number = run.writer.go_back(
        checkpoint=manifest.name,
        origin=manifest.attempt,
        step=manifest.step,
        points=point.state["log"]["points"],
    )
    run.facts = {**run.facts, "attempt": number}
    saver = run.find_part(Saver)
    if saver is not None:
        saver.resumed_from = manifest


def _note(run: EngineRun, place: BadStep, point: ResumePoint) -> dict[str, Any]:
    """Report which batches are skipped; returns the entry for ``run.rollbacks``."""
    data = point.state["data"]
    last = place.batches.stop - 1
    note = {
        "step": place.step,
        "to": data["step"],
        "left_out": {
            "from": {"epoch": data["epoch"] + 1, "batch": data["position"]},
            "to": {"epoch": place.epoch + 1, "batch": last},
        },
    }
    run.writer.event("rollback", checkpoint=point.path.name, **note)
    logger.warning(
        "rolling back from step %d to step %d (%s), continuing after batch %d of epoch %d: "
        "rollback %d of at most %d",
        place.step,
        data["step"],
        point.path.name,
        last,
        place.epoch + 1,
        len(run.rollbacks) + 1,
        MAX_ROLLBACKS,
    )
    return note


def _restore(
    run: EngineRun,
    place: BadStep,
    point: ResumePoint,
    epoch_means: Window,
    start_epoch: Callable[[EngineRun], object],
) -> None:
    data = point.state["data"]
    is_within = data["is_in_epoch"] and data["epoch"] == place.epoch
    # The clock does not go back.
    run.clock.times.count_redone(parse_time_spent(point.state["clock"].get("spent", {})))
    state = {**point.state, "clock": run.clock.state_dict()}
    run.latest.clear()
    run.evaluated_at.clear()
    run.part(ChangedAttributes).restore_initial()
    if is_within:
        start_epoch(run)
        restore_stage_optimizer(run, state["stage"])
    resume_from(run, replace(point, state=state))
    run.stage_progress.load_state_dict(state["stage"], run.monitor)
    run.epoch = place.epoch
    if not is_within:
        epoch_means.empty()
        start_epoch(run)
    loader = data.get("loader") if data["epoch"] == place.epoch else None
    if loader is not None:
        loader = {"position": data["position"], **loader}
    run.feed.start_at(place.epoch, place.batches.stop, data["samples"], loader=loader)
    run.first_step = run.step
    watch = run.find_part(NonfiniteWatch)
    if watch is not None:
        watch.restart(run)
    run.events.has_run_user_code = True
    run.plan.find_next_due(run)
