"""Checkpointing: the whole state of a run is saved as often as the config says."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, final

from typing_extensions import override

from epochal import durable
from epochal.config.checkpoint_name import fill_template
from epochal.engine.every import Every
from epochal.engine.hook import Hook
from epochal.engine.options import CheckpointOptions
from epochal.engine.rescue import is_between_steps
from epochal.engine.saving import Saver, fresh_metrics, request_save
from epochal.errors import CheckpointError
from epochal.records.failure import explain_failure
from epochal.records.times import SAVING

if TYPE_CHECKING:
    from epochal.engine.run import Run

logger = logging.getLogger(__name__)


@final
class Checkpointing(Hook):
    """Asks for checkpoints: every so often, of each better model, at the end, after errors.

    The loop takes them at step boundaries, and a thread writes them. A run without a record
    makes none.

    Args:
        options: The section ``checkpoint``.
    """

    priority = 300
    counts_as = SAVING

    def __init__(self, options: CheckpointOptions | None = None) -> None:
        self._options = options or CheckpointOptions()
        self._has_begun = False

    @override
    def setup(self, run: Run) -> None:
        options = self._options
        self._has_begun = False
        run.saver = Saver(
            find_folder(run, options),
            name=self._name,
            keep_last=options.keep_last,
            keep_best=options.keep_best,
            is_strict=options.on_failure == "stop",
            serves_rollback=run.options.engine.on_nonfinite == "rollback",
        )

    @override
    def stage_start(self, run: Run, name: str) -> None:
        if self._has_begun and run.saver is not None and run.saver.serves_rollback:
            request_save(run, "stage")
        if self._has_begun or run.saver is None:
            return
        self._has_begun = True
        if run.saver.serves_rollback and run.resume is None:
            request_save(run, "start")
        if run.saver.folder is None:
            logger.info("%s", _nothing_is_kept(run.saver))
            if not run.saver.serves_rollback:
                return
        for every in self._options.periods:
            run.plan.add_period(f"save every {every}", every, _ask)
        if run.saver.folder is None:
            return
        first = Every(run.step + 1, "st")
        run.plan.add_once("try whether the state can be saved", first, run.saver.rehearse)

    @override
    def better_model(self, run: Run, value: float) -> None:
        if self._options.keep_best:
            request_save(run, "best")

    @override
    def error(self, run: Run, error: BaseException) -> None:
        if run.saver is None or run.saver.folder is None or not run.step:
            return
        if not isinstance(error, Exception) or not self._options.on_error:
            return
        if is_between_steps(error):
            _save_after(run, run.saver)
        elif run.saver.saved_at is not None:
            step = run.saver.saved_at[0]
            logger.info("the error came within a step; the checkpoint of step %d is whole", step)

    @override
    def run_end(self, run: Run) -> None:
        if run.saver is not None:
            run.saver.finish(run)

    def _name(self, run: Run) -> str:
        position = {"step": run.step, "epoch": run.epoch, "samples": run.samples}
        values = {"tag": run.tag, **position, **run.latest, **fresh_metrics(run)}
        return fill_template(self._options.name, values)


def find_folder(run: Run, options: CheckpointOptions) -> Path | None:
    """Where the checkpoints of a run go; None if it keeps nothing.

    Checkpoints of another place have a folder there for each run, and a link in the run's own.
    """
    own = run.checkpoint_dir
    if own is None or options.dir is None or run.dir is None:
        return own
    target = Path(options.dir).expanduser().absolute() / run.dir.name
    try:
        if not target.is_dir():  # a run that goes on has made it already
            durable.make_dir(target)
        if own.is_dir() and not own.is_symlink() and not any(own.iterdir()):
            own.rmdir()
        if not own.exists():
            durable.replace_link(own, str(target))
    except OSError as error:
        raise CheckpointError(explain_failure(error)) from error
    return own if own.is_dir() else target


def _nothing_is_kept(saver: Saver) -> str:
    text = "nothing is kept: no record, no checkpoints, and a run that is killed starts anew"
    return f"{text}; rollback goes by states in memory" if saver.serves_rollback else text


def _ask(run: Run) -> None:
    request_save(run, "every")


def _save_after(run: Run, saver: Saver) -> None:
    """Save after an error; whatever goes wrong now must not hide it."""
    try:
        saver.save(run, "error")
    except Exception as another:
        logger.error("the state was not saved after the error: %s", another)
        return
    if saver.saved_at is not None and saver.saved_at[0] == run.step:
        logger.info("the state after step %d is saved: resume does again what failed", run.step)
