"""Checkpointing: saves the whole state of a run as often as the config says."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, final

from typing_extensions import override

from epochal import durable
from epochal.config.checkpoint_name import fill_template
from epochal.engine.interfaces.every import Every, join_periods
from epochal.engine.interfaces.hook import Hook
from epochal.engine.interfaces.options import CheckpointOptions
from epochal.engine.run.engine_run import EngineRun, engine_run
from epochal.engine.state.saver import Saver, fresh_metrics
from epochal.errors import CheckpointError, LeaseLostError
from epochal.records.layout.os_errors import explain_os_error
from epochal.records.metrics.time_spent import SAVING

if TYPE_CHECKING:
    from epochal.engine.interfaces.run import Run

logger = logging.getLogger(__name__)


@final
class Checkpointing(Hook):
    """Requests checkpoints: periodically, of each better model, at the end, and after errors.

    The loop takes them between steps, and a thread writes them. A run without a record has none.

    Args:
        options: The section ``checkpoint``.
    """

    priority = 300
    counts_as = SAVING

    def __init__(self, options: CheckpointOptions | None = None) -> None:
        self._options = options or CheckpointOptions()
        self._has_started = False
        self._saver: Saver | None = None

    @override
    def setup(self, run: Run) -> None:
        options = self._options
        self._has_started = False
        self._saver = Saver(
            find_folder(run, options),
            name=self._name,
            keep_last=options.keep_last,
            keep_best=options.keep_best,
            is_strict=options.on_failure == "stop",
            serves_rollback=run.options.engine.on_nonfinite == "rollback",
            is_writer=run.is_main,
        )
        engine_run(run).set_part(Saver, self._saver)

    @override
    def stage_start(self, run: Run, name: str) -> None:
        saver, plan = self._saver, engine_run(run).plan
        assert saver is not None
        if self._has_started:
            if saver.serves_rollback:
                run.request_save("stage")
            return
        self._has_started = True
        if saver.serves_rollback and run.resume is None:
            run.request_save("start")
        if saver.folder is None:
            text = "nothing is saved: no record, no checkpoints"
            text += "; a killed run starts from the beginning"
            if not saver.serves_rollback:
                logger.info(text)
                return
            logger.info("%s; rollback uses states in memory", text)
        for period in self._options.periods:
            periods = engine_run(run).stage_progress.find_periods(period)
            plan.add_soonest(f"save every {join_periods(periods)}", periods, _request_periodic)
        if saver.folder is None:
            return
        first = Every(run.step + 1, "st")
        plan.add_once("check that the state can be saved", first, saver.check_can_save)

    @override
    def better_model(self, run: Run, value: float) -> None:
        if self._options.keep_best:
            run.request_save("best")

    @override
    def error(self, run: Run, error: BaseException) -> None:
        saver = self._saver
        if saver is None or saver.folder is None or not run.step:
            return
        if not isinstance(error, Exception) or not self._options.on_error:
            return
        if isinstance(error, LeaseLostError):  # there is no folder to save to
            return
        if not run.world.is_single:  # other processes may be at another step
            return
        if engine_run(run).is_between_steps:
            _save_after_error(engine_run(run), saver)
        elif saver.saved_at is not None:
            step = saver.saved_at[0]
            logger.info("the error came within a step; the checkpoint of step %d is intact", step)

    @override
    def run_end(self, run: Run) -> None:
        if self._saver is not None:
            self._saver.finish(engine_run(run))

    @override
    def teardown(self, run: Run) -> None:
        self._saver = None

    def _name(self, run: EngineRun) -> str:
        position = {"step": run.step, "epoch": run.epoch, "samples": run.samples}
        values = {"tag": run.tag, **position, **run.latest, **fresh_metrics(run)}
        return fill_template(self._options.name, values)


def find_folder(run: Run, options: CheckpointOptions) -> Path | None:
    """The folder for a run's checkpoints; None if the run has no record.

    With ``checkpoint.dir`` that is a folder of the run there, with a link in the run's own folder.
    """
    own = run.checkpoint_dir
    if own is None or options.dir is None or run.dir is None:
        return own
    target = Path(options.dir).expanduser().absolute() / run.dir.name
    try:
        if not target.is_dir():  # a resumed run has made it already
            durable.make_dir(target)
        if own.is_dir() and not own.is_symlink() and not any(own.iterdir()):
            own.rmdir()
        if not own.exists():
            durable.replace_link(own, str(target))
    except OSError as error:
        raise CheckpointError(explain_os_error(error)) from error
    return own if own.is_dir() else target


def _request_periodic(run: Run) -> None:
    run.request_save("every")


def _save_after_error(run: EngineRun, saver: Saver) -> None:
    """Save after an error; a failure to save must not hide that error."""
    try:
        saver.save(run, "error")
        saver.finish(run)
    except Exception as another:
        logger.error("the state was not saved after the error: %s", another)
        return
    if saver.saved_at is not None and saver.saved_at[0] == run.step:
        logger.info("the state after step %d is saved: resuming repeats what failed", run.step)
