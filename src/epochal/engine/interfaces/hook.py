"""The interface of hooks: objects that are called at the events of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.engine.interfaces.every import Every
    from epochal.engine.interfaces.run import Run
    from epochal.engine.interfaces.task import Batch, Output

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
"""Names of events in other frameworks; ``event:split`` is the event of one split only."""

STATE_METHODS = ("state_dict", "load_state_dict")
"""Methods of a hook that checkpoints call."""

RUNNERS = ("train", "test", "predict")
"""The kinds of runner; a runner of the user's counts as ``train`` unless it says otherwise."""

TASK_PRIORITY = 80
LOG_PRIORITY = 100
USER_PRIORITY = 500


class Hook:
    """Called at the events of a run; override the methods that you need.

    Hooks are called in order of ``priority``, low first; ``teardown`` runs in reverse. An
    exception ends the run and names the hook. Methods may also be named like one of the
    ``ALIASES``; such a method takes any of the event's arguments, by name. Any other method
    that the class does not use itself starts with an underscore.
    """

    priority: int = USER_PRIORITY
    """The order among the hooks of one event, low first."""

    every: Every | None = None
    """Period of ``step_end`` (steps, samples, time) or of the training's ``epoch_end`` (epochs).

    With a period in epochs, ``step_end`` is called between two epochs, before evaluations.
    Without a period, both are called each time; ``Every.NEVER`` disables ``step_end``.
    """

    on: tuple[str, ...] | None = None
    """The splits at whose events it is called; ``step_end`` belongs to ``train``."""

    runners: tuple[str, ...] | None = None
    """The runners under which it is called: ``train``, ``test``, ``predict``; all by default."""

    counts_as: str | None = None
    """The part of the run's time that it counts as, such as ``saving``; by default its own."""

    def setup(self, run: Run) -> None:
        """The first event; all parts exist, and none was used; may change the task's methods."""

    def assembled(self, run: Run) -> None:
        """The last event at which to change parts or task methods; they are bound after it."""

    def run_start(self, run: Run) -> None:
        """Before the runner starts; random generators are seeded."""

    def stage_start(self, run: Run, name: str) -> None:
        """Before the first step of a stage; a run without stages has one named ``main``."""

    def epoch_start(self, run: Run, split: str) -> None:
        """Before a pass over the loaders of ``split``."""

    def loop_start(self, run: Run, split: str) -> None:
        """Before the first batch of one loader; ``run.loader_name`` says which."""

    def batch_start(self, run: Run, split: str, index: int, batch: Batch) -> None:
        """Before a batch is moved to the device; in training, once per microbatch."""

    def batch_end(self, run: Run, split: str, index: int, batch: Batch, out: Output) -> None:
        """After a batch was added to the means; ``out`` is the task's output for it."""

    def step_end(self, run: Run) -> None:
        """After an optimizer update; ``run.step`` already counts it."""

    def loop_end(self, run: Run, split: str) -> None:
        """After the last batch of one loader."""

    def epoch_end(self, run: Run, split: str, metrics: dict[str, float]) -> None:
        """After a pass over ``split``, with its metrics, such as ``train/loss``."""

    def eval_start(self, run: Run, split: str) -> None:
        """Before an evaluation sets the model to eval mode."""

    def eval_end(self, run: Run, split: str, metrics: dict[str, float]) -> None:
        """After an evaluation; its metrics are recorded and the monitor is updated."""

    def better_model(self, run: Run, value: float) -> None:
        """The monitored metric reached its best value so far; before ``eval_end``."""

    def stage_end(self, run: Run, name: str) -> None:
        """After the last step of a stage."""

    def checkpoint_saved(self, run: Run, path: Path) -> None:
        """After a checkpoint was written to ``path``."""

    def checkpoint_loaded(self, run: Run, path: Path) -> None:
        """After all parts were restored from the checkpoint at ``path``."""

    def error(self, run: Run, error: BaseException) -> None:
        """The run failed; ``run_end`` and ``teardown`` follow."""

    def run_end(self, run: Run) -> None:
        """After the runner, also after an error; all parts still exist."""

    def teardown(self, run: Run) -> None:
        """The last event, in reverse order; all hooks are called even if one raises."""
