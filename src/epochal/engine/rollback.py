"""Going back: a run whose gradients are not finite goes on from an earlier state, on other data."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from epochal.checkpoint import deserialize_state, mark_as_damaged, read_checkpoint
from epochal.engine.parts import ResumePoint
from epochal.engine.process.signals import is_interrupted_or_preempted
from epochal.engine.resume import resume_from
from epochal.engine.stages.transition import restore_stage_optimizer
from epochal.engine.step.nonfinite_watch import stop_diverged
from epochal.errors import CheckpointError
from epochal.records.folder.checkpoint_manifests import find_checkpoints
from epochal.records.metrics.time_spent import parse_time_spent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from epochal.engine.measure.meter import Window
    from epochal.engine.run import Run
    from epochal.engine.state.saver import Saver
    from epochal.engine.step.nonfinite_watch import BadStep
    from epochal.records.folder.checkpoint_manifests import CheckpointManifest

logger = logging.getLogger(__name__)

MAX_ROLLBACKS = 3
"""How often one run goes back; after that it ends as diverged."""


def roll_back(run: Run, epoch_means: Window, start_epoch: Callable[[Run], object]) -> bool:
    """Look at the last steps, and go back if one of them asks for it; whether the run did.

    Weights and everything else become what they were at the newest state before the first bad
    step. The data does not go back: the run goes on behind the bad batch, so that all batches
    since that state are left out. On disk nothing changes but the list of attempts: a run that
    is killed before it saves again goes on from the same state, and comes to the same bits.

    Args:
        run: Between two steps, or at the end of an epoch that is not finished yet.
        epoch_means: The means of its epoch.
        start_epoch: Begins an epoch.
    """
    if run.watch is not None:
        run.watch.check_now(run)
    place = run.diverged_at
    if place is None or is_interrupted_or_preempted(run):
        return False
    # Only what was asked for before: a signal may come while the state is read.
    run.diverged_at, run.stop_reason, run.stop_status, run.requests_save = None, "", "", ""
    point = _find_point(run, place)
    if point is None:
        stop_diverged(run)
        return False
    _begin_attempt(run, point)
    known = (*run.rollbacks, _note(run, place, point))
    _restore(run, place, point, epoch_means, start_epoch)
    run.rollbacks = known
    return True


def _find_point(run: Run, place: BadStep) -> ResumePoint | None:
    """The newest state that is worth going back to; None if going back does not help."""
    if len(run.rollbacks) >= MAX_ROLLBACKS:
        why = f"the run went back {MAX_ROLLBACKS} times already"
    elif run.saver is None:
        why = "the run keeps no states"
    else:
        for point in _iter_resume_points(run, run.saver, place):
            if not run.course.matches_checkpoint(point.state["stage"]):
                continue  # its parts may be others
            if _is_finite(run, point.state):
                return point
            logger.warning("%s: its own weights are not finite", point.path.name)
        why = "there is no earlier state of this stage whose weights are finite"
    logger.error(
        "the gradient of step %d is not finite, and %s: the run ends, with the weights from before "
        "that step; try a smaller optim.lr, or optim.clip=1.0",
        place.step,
        why,
    )
    return None


def _iter_resume_points(run: Run, saver: Saver, place: BadStep) -> Iterator[ResumePoint]:
    """States before a step, the newest first; those last that only an interruption made."""
    if saver.folder is None:
        for manifest, taken in reversed(saver.states_in_memory):
            copies = {name: tensor.clone() for name, tensor in taken.tensors.items()}
            state = deserialize_state(taken.plain, copies)
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
            state, _ = read_checkpoint(manifest.path)
        except CheckpointError as error:
            aside = mark_as_damaged(manifest.path).name
            logger.warning("%s; set aside as %s", str(error).splitlines()[0], aside)
            continue
        yield ResumePoint(state=state, manifest=manifest, path=manifest.path, has_ended=True)


def _is_of_this_run(run: Run, saver: Saver, manifest: CheckpointManifest) -> bool:
    """Whether a checkpoint lies on the way to here, not on one that was left."""
    if manifest.attempt == run.facts.get("attempt", 0):
        return True
    origin = saver.resumed_from
    return (
        origin is not None and manifest.attempt <= origin.attempt and manifest.step <= origin.step
    )


def _is_finite(run: Run, state: Mapping[str, Any]) -> bool:
    weights = state["model"]["weights"]
    learned = [name for name, one in run.model.named_parameters() if one.requires_grad]
    return all(bool(weights[name].isfinite().all()) for name in learned if name in weights)


def _begin_attempt(run: Run, point: ResumePoint) -> None:
    """Let whatever is recorded from here on count instead of what came after the state."""
    manifest = point.manifest
    number = run.writer.go_back(
        checkpoint=manifest.name,
        origin=manifest.attempt,
        step=manifest.step,
        points=point.state["log"]["points"],
    )
    run.facts = {**run.facts, "attempt": number}
    if run.saver is not None:
        run.saver.resumed_from = manifest


def _note(run: Run, place: BadStep, point: ResumePoint) -> dict[str, Any]:
    """What was left out, for the record and for the run itself."""
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
        "going back from step %d to step %d (%s), and on after batch %d of epoch %d: "
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
    run: Run,
    place: BadStep,
    point: ResumePoint,
    epoch_means: Window,
    start_epoch: Callable[[Run], object],
) -> None:
    data = point.state["data"]
    is_within = data["is_in_epoch"] and data["epoch"] == place.epoch
    # The time that has passed has passed.
    run.clock.times.go_back(parse_time_spent(point.state["clock"].get("spent", {})))
    state = {**point.state, "clock": run.clock.state_dict()}
    run.latest.clear()
    run.evaluated_at.clear()
    run.attributes.restore_initial()
    if is_within:
        start_epoch(run)
        restore_stage_optimizer(run, state["stage"])
    resume_from(run, replace(point, state=state))
    run.course.load_state_dict(state["stage"], run.monitor)
    run.epoch = place.epoch
    if not is_within:
        epoch_means.empty()
        start_epoch(run)
    loader = data.get("loader") if data["epoch"] == place.epoch else None
    if loader is not None:
        loader = {"position": data["position"], **loader}
    run.feed.start_at(place.epoch, place.batches.stop, data["samples"], loader=loader)
    run.first_step = run.step
    if run.watch is not None:
        run.watch.restart(run)
    run.events.has_run_user_code = True
    run.plan.find_next_due(run)
