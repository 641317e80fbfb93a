"""Chooses how a run takes steps: eager, captured or compiled."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from epochal.engine.capture.captured_steps import CapturedSteps
from epochal.engine.capture.compiled_steps import CompiledSteps, require_compile_backend
from epochal.engine.capture.obstacles import find_capture_obstacle

if TYPE_CHECKING:
    from epochal.engine.run.engine_run import EngineRun
    from epochal.engine.step.build_step import TakeStep, Update

logger = logging.getLogger(__name__)


def choose_step(run: EngineRun, update: Update) -> TakeStep:
    """The function that takes the steps of a run, by ``engine.step`` and what the run allows.

    Args:
        run: Ready to train, with its updater bound.
        update: Takes an eager step.
    """
    requested = "eager" if run.is_debug else run.options.engine.step
    obstacle = "" if requested == "eager" else find_capture_obstacle(run)
    if requested == "compile" or (requested == "auto" and not obstacle):
        require_compile_backend(run)
    if requested != "eager" and not obstacle:
        return CapturedSteps(run, update, requested=requested)
    run.choices["step"] = "eager"
    if requested == "compile":
        run.choices["step"] = "compile"
        logger.info("step: compiled, not captured: %s", obstacle)
        return CompiledSteps(run, update)
    if requested == "graph" or (requested == "auto" and run.device.type == "cuda"):
        level = logging.WARNING if requested == "graph" else logging.INFO
        logger.log(level, "step: eager: %s", obstacle)
    return partial(update, run)
