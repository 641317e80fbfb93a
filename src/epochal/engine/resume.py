"""Resuming: restores a run to the state of one of its checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.engine.process.signals import EXTERNAL_STOPS
from epochal.engine.run.stage_progress import LIMIT_REASONS
from epochal.engine.state.rank_state import restore_rank_state
from epochal.engine.state.run_state import restore_state
from epochal.engine.state.saver import Saver, read_save_position

if TYPE_CHECKING:
    from epochal.engine.interfaces.run import ResumePoint
    from epochal.engine.run.engine_run import EngineRun


def set_resume_position(run: EngineRun) -> None:
    """Set step and epoch of a run that will resume, before anything is restored."""
    if run.resume is not None:
        data = run.resume.state["data"]
        run.step = run.first_step = data["step"]
        run.epoch = data["epoch"]


def is_inside_epoch(point: ResumePoint) -> bool:
    """Whether the checkpoint was made between two steps of one epoch."""
    return bool(point.state["data"]["is_in_epoch"])


def resume_from(run: EngineRun, point: ResumePoint) -> None:
    """Restore every part and fire ``checkpoint_loaded``; random numbers drawn there do not count.

    A run with other parts than the checkpoint is refused.
    """
    state = point.state
    restore_state(run, state, is_strict=point.is_strict)
    saver = run.find_part(Saver)
    if saver is not None:
        saver.saved_at = read_save_position(run)
        saver.resumed_from = point.manifest
    run.fire("checkpoint_loaded", point.path)
    restore_rank_state(run, state)
    stop = state.get("stop", {})
    is_external = stop.get("status") in EXTERNAL_STOPS
    is_limit = stop.get("reason") in LIMIT_REASONS.values()
    if stop.get("reason") and not (is_external or is_limit or point.has_ended):
        run.stop(stop["reason"], status=stop["status"])
