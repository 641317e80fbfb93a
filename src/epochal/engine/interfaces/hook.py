"""The interface of hooks: objects that are called at fixed points of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.engine.interfaces.every import Every
    from epochal.engine.interfaces.task import Batch, Output
    from epochal.engine.run import Run

EVENTS: dict[str, tuple[str, ...]] = {
    "setup": ("run",),
    "assembled": ("run",),
    "run_start": ("run",),
    "stage_start": ("run", "name"),
    "epoch_start": ("run", "split"),
    "loop_start": ("run", "split"),
    "batch_start": ("run", "split", "index", "batch"),
    "batch_end": ("run", "split", "index", "batch", "out"),
    "step_end": ("run",),
    "loop_end": ("run", "split"),
    "epoch_end": ("run", "split", "metrics"),
    "eval_start": ("run", "split"),
    "eval_end": ("run", "split", "metrics"),
    "better_model": ("run", "value"),
    "stage_end": ("run", "name"),
    "checkpoint_saved": ("run", "path"),
    "checkpoint_loaded": ("run", "path"),
    "error": ("run", "error"),
    "run_end": ("run",),
    "teardown": ("run",),
}
"""Every event with the names of its arguments."""

ALIASES: dict[str, str] = {
    "on_setup": "setup",
    "on_assembled": "assembled",
    "on_teardown": "teardown",
    "on_run_start": "run_start",
    "on_run_end": "run_end",
    "before_solve": "run_start",
    "after_solve": "run_end",
    "on_fit_start": "run_start",
    "on_fit_end": "run_end",
    "before_run": "run_start",
    "after_run": "run_end",
    "on_train_begin": "stage_start",
    "on_train_start": "stage_start",
    "on_train_end": "stage_end",
    "before_train": "stage_start",
    "after_train": "stage_end",
    "on_stage_start": "stage_start",
    "on_stage_end": "stage_end",
    "onEpochStart": "epoch_start:train",
    "onEpochEnd": "epoch_end:train",
    "begin_epoch": "epoch_start:train",
    "end_epoch": "epoch_end:train",
    "on_train_epoch_start": "epoch_start:train",
    "on_train_epoch_end": "epoch_end:train",
    "on_epoch_begin": "epoch_start:train",
    "on_epoch_start": "epoch_start",
    "on_epoch_end": "epoch_end",
    "before_epoch": "epoch_start",
    "after_epoch": "epoch_end",
    "before_train_epoch": "epoch_start:train",
    "after_train_epoch": "epoch_end:train",
    "before_val_epoch": "epoch_start:val",
    "after_val_epoch": "epoch_end:val",
    "before_test_epoch": "epoch_start:test",
    "after_test_epoch": "epoch_end:test",
    "on_validation_epoch_start": "epoch_start:val",
    "on_validation_epoch_end": "epoch_end:val",
    "on_test_epoch_start": "epoch_start:test",
    "on_test_epoch_end": "epoch_end:test",
    "on_predict_epoch_start": "epoch_start:predict",
    "on_predict_epoch_end": "epoch_end:predict",
    "before_all_iter": "loop_start",
    "after_all_iter": "loop_end",
    "begin_eval": "eval_start",
    "end_eval": "eval_end",
    "on_eval_start": "eval_start",
    "on_eval_end": "eval_end",
    "before_val": "eval_start:val",
    "after_val": "eval_end:val",
    "before_test": "eval_start:test",
    "after_test": "eval_end:test",
    "on_validation_start": "eval_start:val",
    "on_validation_end": "eval_end:val",
    "on_test_start": "eval_start:test",
    "on_test_end": "eval_end:test",
    "onBatchStart": "batch_start",
    "onBatchEnd": "batch_end",
    "onTrainBatchStart": "batch_start:train",
    "onTrainBatchEnd": "batch_end:train",
    "on_train_batch_begin": "batch_start:train",
    "on_batch_start": "batch_start",
    "on_batch_end": "batch_end",
    "before_iter": "batch_start",
    "after_iter": "batch_end",
    "before_train_iter": "batch_start:train",
    "after_train_iter": "batch_end:train",
    "before_val_iter": "batch_start:val",
    "after_val_iter": "batch_end:val",
    "before_test_iter": "batch_start:test",
    "after_test_iter": "batch_end:test",
    "begin_step": "batch_start:train",
    "end_step": "batch_end:train",
    "on_train_batch_start": "batch_start:train",
    "on_train_batch_end": "batch_end:train",
    "on_validation_batch_start": "batch_start:val",
    "on_validation_batch_end": "batch_end:val",
    "on_test_batch_start": "batch_start:test",
    "on_test_batch_end": "batch_end:test",
    "on_predict_batch_start": "batch_start:predict",
    "on_predict_batch_end": "batch_end:predict",
    "on_step_end": "step_end",
    "on_better_model": "better_model",
    "on_save_checkpoint": "checkpoint_saved",
    "on_load_checkpoint": "checkpoint_loaded",
    "on_exception": "error",
    "on_error": "error",
}
"""Names that users know from elsewhere; ``event:split`` hears that split alone."""

TASK_PRIORITY = 80
LOG_PRIORITY = 100
USER_PRIORITY = 500


class Hook:
    """Called at the events of a run; override those that matter and leave the others.

    Hooks act between steps, in order of ``priority``, low first; ``teardown`` runs in reverse.
    An exception ends the run and names the hook. Methods may also bear one of the ``ALIASES``;
    such a method takes any of the event's arguments, by name.
    """

    priority: int = USER_PRIORITY
    """Its place among the hooks of one event, low first."""

    every: Every | None = None
    """Period of ``step_end`` (steps, samples, time) or of the training's ``epoch_end`` (epochs).

    With a period in epochs ``step_end`` is called between two epochs, before evaluations.
    Without one both are called each time; ``Every.NEVER`` leaves ``step_end`` out.
    """

    on: tuple[str, ...] | None = None
    """Splits whose events it hears, for events that have a split; ``step_end`` is training."""

    counts_as: str | None = None
    """What the time it takes counts as, such as ``saving``; by default as a part of its own."""

    def setup(self, run: Run) -> None:
        """First of all events; parts exist, none was used; may change the task's methods."""

    def assembled(self, run: Run) -> None:
        """Last moment to change parts or task methods; they are bound right after this."""

    def run_start(self, run: Run) -> None:
        """Before the runner starts; the run's generators are seeded."""

    def stage_start(self, run: Run, name: str) -> None:
        """Before the first step of a stage; a run without stages has one named ``main``."""

    def epoch_start(self, run: Run, split: str) -> None:
        """Before a pass over the loaders of ``split``."""

    def loop_start(self, run: Run, split: str) -> None:
        """Before the first batch of one loader; ``run.loader_name`` says which."""

    def batch_start(self, run: Run, split: str, index: int, batch: Batch) -> None:
        """Before a batch is moved to the device; in training, once per microbatch."""

    def batch_end(self, run: Run, split: str, index: int, batch: Batch, out: Output) -> None:
        """After a batch entered the averages; ``out`` is the task's output for it."""

    def step_end(self, run: Run) -> None:
        """After an optimizer update; ``run.step`` counts it already."""

    def loop_end(self, run: Run, split: str) -> None:
        """After the last batch of one loader."""

    def epoch_end(self, run: Run, split: str, metrics: dict[str, float]) -> None:
        """After a pass over ``split``, with its means, such as ``train/loss``."""

    def eval_start(self, run: Run, split: str) -> None:
        """Before an evaluation; the model is in eval mode after this."""

    def eval_end(self, run: Run, split: str, metrics: dict[str, float]) -> None:
        """After an evaluation; metrics are recorded and the monitor knows them already."""

    def better_model(self, run: Run, value: float) -> None:
        """The monitored metric reached its best value so far; comes before ``eval_end``."""

    def stage_end(self, run: Run, name: str) -> None:
        """After the last step of a stage."""

    def checkpoint_saved(self, run: Run, path: Path) -> None:
        """A complete checkpoint lies at ``path``."""

    def checkpoint_loaded(self, run: Run, path: Path) -> None:
        """Every part has the state that was found at ``path``."""

    def error(self, run: Run, error: BaseException) -> None:
        """The run failed; ``run_end`` and ``teardown`` follow."""

    def run_end(self, run: Run) -> None:
        """After the runner, also after an error; the model is still there."""

    def teardown(self, run: Run) -> None:
        """Last of all events, in reverse order; every hook is called even if one raises."""
