"""Tests of saving by the section ``checkpoint``."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from epochal.checkpoint import read_checkpoint
from epochal.engine import Environment, Hook, Options, Run
from epochal.engine.interfaces.options import CheckpointOptions, EngineOptions, TrainOptions
from epochal.engine.interfaces.run import ResumePoint
from epochal.errors import CheckpointError
from epochal.hooks.checkpointing import Checkpointing
from epochal.records.folder.checkpoint_manifests import find_checkpoints, find_newest_checkpoint
from epochal.testing import HookConformance, TinyTask, execute_run, short_options, tiny_run
from resume import Notes

if TYPE_CHECKING:
    from pathlib import Path


def train(folder: Path | None, *hooks: object, resume: Any = None, **options: Any) -> Any:
    checkpoint = CheckpointOptions(**options.pop("checkpoint", {}))
    monitor = options.pop("monitor", "-val/acc")
    facts: dict[str, Any] = {"writer": Notes(), "tag": "tiny", "checkpoint_dir": folder}
    facts |= {"resume": resume} | options.pop("facts", {})
    run = tiny_run(
        *hooks,
        options.pop("hook", None) or Checkpointing(checkpoint),
        task=TinyTask(num_samples=12),
        monitor=monitor,
        options=short_options(**options),
        setting=Environment(**facts),
    )
    return execute_run(run)


def names_in(folder: Path) -> list[str]:
    return [one.name for one in find_checkpoints(folder)]


def test_every_epoch_the_last_and_the_best_are_kept_by_default(tmp_path: Path) -> None:
    train(tmp_path, for_="3ep")
    found = find_checkpoints(tmp_path)
    assert found[-1].step == 9
    assert len(found) <= 2
    assert (tmp_path / "last").resolve().name == found[-1].name
    best = min(found, key=lambda one: one.metrics["val/acc"])
    assert (tmp_path / "best").resolve().name == best.name


def test_periods_of_every_kind_can_be_combined(tmp_path: Path) -> None:
    checkpoint = {"every": ["2st", "1ep", "20sa"], "keep_last": None, "keep_best": 0}
    train(tmp_path, checkpoint=checkpoint)
    assert [one.step for one in find_checkpoints(tmp_path)] == [2, 3, 4, 5, 6]


def test_never_saves_only_the_end(tmp_path: Path) -> None:
    train(tmp_path, checkpoint={"every": 0, "keep_best": 0}, for_="4st")
    (manifest,) = find_checkpoints(tmp_path)
    assert (manifest.step, manifest.epoch, manifest.reason) == (4, 1, "end")


class Scores(Hook):
    """Gives evaluations a value of their own."""

    def __init__(self, *values: float) -> None:
        self._values = iter(values)

    def run_start(self, run: Run) -> None:
        run.task.epoch_metric = lambda: {"score": next(self._values)}
        run.bind()


@pytest.mark.parametrize("mode", ["min", "max"])
def test_each_better_model_is_saved_and_the_best_are_kept(tmp_path: Path, mode: str) -> None:
    sign = 1 if mode == "max" else -1
    values = [sign * value for value in (-5.0, -3.0, float("nan"), -4.0)]
    checkpoint = {"every": 0, "keep_last": 1, "keep_best": 1}
    train(
        tmp_path,
        Scores(*values),
        checkpoint=checkpoint,
        monitor=f"{'+' if mode == 'max' else '-'}val/score",
        for_="4ep",
        sanity_batches=0,
    )
    assert [one.epoch for one in find_checkpoints(tmp_path)] == [2, 4]
    assert (tmp_path / "best").resolve().name == "tiny-6"


def test_a_best_model_before_the_first_step_is_saved(tmp_path: Path) -> None:
    train(tmp_path, checkpoint={"keep_last": None}, eval_at_start=True)
    assert find_checkpoints(tmp_path)[0].step == 0


def test_names_follow_the_template(tmp_path: Path) -> None:
    checkpoint = {"name": "{tag}-e{epoch}-{val/acc:.2f}", "keep_last": None}
    train(tmp_path, checkpoint=checkpoint)
    first, second = find_checkpoints(tmp_path)
    assert first.name == f"tiny-e1-{first.metrics['val/acc']:.2f}"
    assert second.name.startswith("tiny-e2-")


def test_without_a_record_nothing_is_written_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        train(None)
    assert "nothing is saved: no record, no checkpoints" in caplog.text


def test_state_that_cannot_be_saved_is_an_error_at_the_first_step(tmp_path: Path) -> None:
    class Odd(Hook):
        def state_dict(self) -> dict[str, Any]:
            return {"it": object()}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            pass

        def run_end(self, run: Run) -> None:
            assert run.step == 1

    with pytest.raises(CheckpointError, match=r"hooks: Odd#0\.it: cannot be kept"):
        train(tmp_path, Odd())


def test_checkpoint_dir_has_a_folder_per_run_and_the_run_a_link_to_it(tmp_path: Path) -> None:
    own = tmp_path / "run-1" / "checkpoints"
    own.mkdir(parents=True)
    train(own, facts={"dir": own.parent}, checkpoint={"dir": str(tmp_path / "large")})
    assert names_in(tmp_path / "large" / "run-1")[-1] == "tiny-6"
    assert own.is_symlink()
    assert names_in(own)[-1] == "tiny-6"


class Failing(Hook):
    def __init__(self, event: str, step: int) -> None:
        self._event, self._step = event, step

    def step_end(self, run: Run) -> None:
        if (self._event, self._step) == ("step_end", run.step):
            raise ArithmeticError

    def eval_start(self, run: Run, split: str) -> None:
        if (self._event, self._step) == ("eval_start", run.step):
            raise ArithmeticError

    def batch_end(self, run: Run, split: str, index: int, batch: Any, out: Any) -> None:
        if (self._event, self._step) == ("batch_end", run.step):
            raise ArithmeticError


@pytest.mark.parametrize("event", ["step_end", "eval_start"])
@pytest.mark.parametrize("step", [2, 3])
def test_the_state_is_saved_after_an_error_between_steps_and_resuming_repeats_it(
    tmp_path: Path, event: str, step: int
) -> None:
    whole = train(tmp_path / "whole", eval_every="1st")
    folder = tmp_path / "broken"
    with pytest.raises(ArithmeticError):
        train(
            folder, Failing(event, step), eval_every="1st", checkpoint={"every": 0, "keep_best": 0}
        )
    (manifest,) = find_checkpoints(folder)
    assert (manifest.step, manifest.reason) == (step, "error")
    state, _ = read_checkpoint(manifest.path)
    point = ResumePoint(state=state, manifest=manifest, path=manifest.path)
    resumed = train(folder, resume=point, eval_every="1st")
    assert (resumed.steps, resumed.metrics) == (whole.steps, whole.metrics)


def test_a_state_that_is_not_written_after_an_error_is_not_called_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def write(*_: object, **__: object) -> None:
        raise CheckpointError("the disk is full")

    monkeypatch.setattr("epochal.engine.state.saver.write_checkpoint", write)
    with caplog.at_level(logging.INFO), pytest.raises(ArithmeticError):
        train(tmp_path, Failing("step_end", 2), checkpoint={"every": 0, "keep_best": 0})
    assert "the checkpoint of step 2 was not written: the disk is full" in caplog.text
    assert "is saved" not in caplog.text


def test_an_error_within_a_step_leaves_the_newest_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO), pytest.raises(ArithmeticError):
        train(tmp_path, Failing("batch_end", 4), checkpoint={"every": "3st"})
    manifest, _ = find_newest_checkpoint(tmp_path)
    assert manifest is not None
    assert (manifest.step, manifest.epoch) == (3, 1)
    assert "within a step; the checkpoint of step 3 is intact" in caplog.text


def test_on_error_false_saves_nothing_after_errors(tmp_path: Path) -> None:
    checkpoint = {"on_error": False, "every": 0, "keep_best": 0}
    with pytest.raises(ArithmeticError):
        train(tmp_path, Failing("step_end", 2), checkpoint=checkpoint)
    assert not find_checkpoints(tmp_path)


def test_one_hook_can_serve_several_runs(tmp_path: Path) -> None:
    hook = Checkpointing()
    for name in ("a", "b"):
        train(tmp_path / name, hook=hook, for_="1ep", facts={"tag": name})
        assert names_in(tmp_path / name) == [f"{name}-3"]


def going_back(folder: Path | None, checkpoint: dict[str, Any] | None = None) -> None:
    engine = EngineOptions(on_nonfinite="rollback")
    train_options = TrainOptions(for_="2ep")
    run = tiny_run(
        Checkpointing(CheckpointOptions(**(checkpoint or {}))),
        task=TinyTask(num_samples=12),
        options=Options(train=train_options, engine=engine),
        setting=Environment(writer=Notes(), tag="tiny", checkpoint_dir=folder),
    )
    execute_run(run)


def test_a_run_with_rollback_is_saved_before_its_first_step(tmp_path: Path) -> None:
    going_back(tmp_path, {"keep_last": None, "keep_best": 0})
    found = [(one.step, one.reason) for one in find_checkpoints(tmp_path)]
    assert found[0] == (0, "start")
    assert [step for step, _ in found] == [0, 3, 6]


def test_without_a_record_rollback_uses_states_in_memory_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        going_back(None)
    told = (
        "nothing is saved: no record, no checkpoints; a killed run starts from the beginning; "
        "rollback uses states in memory"
    )
    assert caplog.messages.count(told) == 1
    assert "checkpoints take" not in caplog.text


class TestConformance(HookConformance):
    def make(self) -> Checkpointing:
        return Checkpointing()


def test_a_run_that_ends_by_steps_is_saved_some_twenty_times(tmp_path: Path) -> None:
    checkpoint = {"keep_last": None, "keep_best": 0}
    for length, steps in (
        ("31st", [*range(2, 31, 2), 31]),
        ("44st", [*range(3, 44, 3), 44]),  # an epoch has three steps
    ):
        train(tmp_path / length, checkpoint=checkpoint, for_=length, eval_every=0)
        assert [one.step for one in find_checkpoints(tmp_path / length)] == steps, length


def test_the_best_weights_may_be_those_of_the_last_step(tmp_path: Path) -> None:
    scores = Scores(*map(float, range(14)))
    train(tmp_path, scores, for_="41st", monitor="+val/score", sanity_batches=0)
    assert (tmp_path / "best").resolve().name == "tiny-41"
