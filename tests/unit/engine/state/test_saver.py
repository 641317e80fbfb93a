"""Tests of checkpoints while a run trains."""

from __future__ import annotations

import errno
import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch

from engine.parts import Sums, adder, fit, make_run
from epochal.checkpoint import read_checkpoint
from epochal.engine import Hook, Monitor, Run
from epochal.engine.state import saver as saving
from epochal.engine.state.saver import Saver, fresh_metrics
from epochal.errors import CheckpointError
from epochal.records.folder.checkpoint_manifests import find_checkpoints, find_newest_checkpoint
from resume import Notes, point_of

if TYPE_CHECKING:
    from pathlib import Path


def saver(folder: Path | None, **options: Any) -> Saver:
    given = {"keep_last": None, "name": lambda run: f"step-{run.step}"} | options
    return Saver(folder, **given)


class Asking(Hook):
    """Requests checkpoints after some steps, and notes those that were written."""

    def __init__(self, saver: Saver | None, *steps: int, reason: str = "asked") -> None:
        self._saver, self._steps, self._reason = saver, steps, reason
        self.saved: list[tuple[str, str]] = []

    def setup(self, run: Run) -> None:
        run.set_part(Saver, self._saver)

    def step_end(self, run: Run) -> None:
        if run.step in self._steps:
            run.request_save(self._reason)

    def checkpoint_saved(self, run: Run, path: Path) -> None:
        self.saved.append((path.name, threading.current_thread().name))

    def run_end(self, run: Run) -> None:
        if run.find_part(Saver) is not None:
            run.find_part(Saver).finish(run)


def train(*hooks: object, **options: Any) -> Any:
    given = {"for_": "2ep", "setting": {"writer": Notes()}} | options
    return fit(make_run(Sums(12), adder(), hooks=hooks, **given))


def steps_in(folder: Path) -> list[tuple[int, int, str]]:
    return [(one.step, one.epoch, one.reason) for one in find_checkpoints(folder)]


def test_a_checkpoint_is_taken_at_the_boundary_of_its_request(tmp_path: Path) -> None:
    asking = Asking(saver(tmp_path), 1, 5)
    train(asking)
    assert steps_in(tmp_path) == [(1, 0, "asked"), (5, 1, "asked"), (6, 2, "end")]
    assert asking.saved == [(f"step-{step}", "MainThread") for step in (1, 5, 6)]


def test_a_save_after_the_last_step_waits_for_the_end_of_the_epoch(tmp_path: Path) -> None:
    train(Asking(saver(tmp_path), 3), eval_every="1ep")
    state, manifest = read_checkpoint(tmp_path / "step-3")
    assert (manifest.epoch, state["data"]["is_in_epoch"]) == (1, False)
    assert manifest.metrics["val/mae"] == state["latest"]["val/mae"]


def test_a_run_that_was_ended_in_its_last_evaluation_is_saved_again_after_it(
    tmp_path: Path,
) -> None:
    class Preempt(Hook):
        def eval_start(self, run: Run, split: str) -> None:
            if run.epoch == 2:
                run.stop("preempted", status="preempted")

    def save_into(folder: Path) -> dict[str, Any]:
        state, _ = read_checkpoint(find_newest_checkpoint(folder)[0].path)
        return state

    train(Asking(saver(tmp_path)), Preempt())
    before = save_into(tmp_path)
    assert (before["data"]["step"], before["evaluated_at"]) == (6, {"val": 3})
    train(Asking(saver(tmp_path)), setting={"writer": Notes(), "resume": point_of(before)})
    after = save_into(tmp_path)
    assert (after["data"]["step"], after["evaluated_at"]) == (6, {"val": 6})
    assert "val/mae" in find_newest_checkpoint(tmp_path)[0].metrics


def test_several_requests_make_one_checkpoint(tmp_path: Path) -> None:
    keeper = saver(tmp_path)
    train(Asking(keeper, 2), Asking(keeper, 2, reason="best"))
    assert steps_in(tmp_path)[0] == (2, 0, "asked, best")


def test_a_request_within_a_step_saves_after_it(tmp_path: Path) -> None:
    class Early(Asking):
        def batch_end(self, run: Run, split: str, index: int, batch: Any, out: Any) -> None:
            if split == "train" and run.step == 1:  # the second one is in progress
                run.request_save("asked")

    train(Early(saver(tmp_path)))
    assert steps_in(tmp_path)[0] == (2, 0, "asked")


def test_without_a_saver_requests_do_nothing(tmp_path: Path) -> None:
    train(Asking(None, 1))
    train(Asking(saver(None), 1))
    assert not list(tmp_path.iterdir())


def test_the_manifest_has_the_facts_of_the_run(tmp_path: Path) -> None:
    setting = {"writer": Notes(), "facts": {"run": "r1", "attempt": 2, "unknown": 1}}
    options = {"setting": setting, "parts": {"monitor": Monitor("val/mae")}, "eval_every": "2st"}
    train(Asking(saver(tmp_path), 2), **options)
    (manifest, *_) = find_checkpoints(tmp_path)
    assert (manifest.run, manifest.attempt, manifest.step, manifest.samples) == ("r1", 2, 2, 8)
    assert (manifest.monitor, manifest.mode) == ("val/mae", "min")
    assert manifest.metrics.keys() == {"val/mae"}
    assert manifest.choices == {"step": "eager"}


def test_metrics_of_another_step_are_not_in_the_manifest() -> None:
    run = make_run()
    run.latest = {"val/acc": 0.5, "val_ema/acc": 0.6, "test/acc": 0.4, "train/loss": 1.0}
    run.step, run.evaluated_at, run.is_in_epoch = 7, {"val": 7, "test": 5}, True
    assert fresh_metrics(run) == {"val/acc": 0.5, "val_ema/acc": 0.6}
    run.is_in_epoch = False
    assert fresh_metrics(run).keys() == {"val/acc", "val_ema/acc", "train/loss"}


def fail_to_write(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def write(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(saving, "write_checkpoint", write)


def test_a_failed_write_is_logged_and_training_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fail_to_write(monkeypatch, CheckpointError("the disk is full"))
    asking = Asking(saver(tmp_path), 2)
    assert train(asking).steps == 6
    assert "the checkpoint of step 2 was not written: the disk is full" in caplog.text
    assert not asking.saved


def test_a_failed_write_ends_a_strict_or_preempted_run_and_one_with_a_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table: list[tuple[str, bool, BaseException]] = [
        ("asked", True, OSError(errno.ENOSPC, "full")),
        ("preempted", False, CheckpointError("full")),
        ("asked", False, ZeroDivisionError("a bug: full")),
    ]
    for reason, is_strict, error in table:
        fail_to_write(monkeypatch, error)
        with pytest.raises(type(error), match="full"):
            train(Asking(saver(tmp_path, is_strict=is_strict), 2, reason=reason))


def test_old_checkpoints_that_cannot_be_removed_are_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise CheckpointError("not allowed")

    monkeypatch.setattr(saving, "prune_checkpoints", refuse)
    train(Asking(saver(tmp_path), 2))
    assert "old checkpoints could not be removed: not allowed" in caplog.text
    assert steps_in(tmp_path)


def test_a_save_waits_for_the_write_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    busy: list[int] = []
    write = saving.write_checkpoint

    def watched(*args: Any, **options: Any) -> Any:
        busy.append(1)
        assert sum(busy) == 1
        try:
            return write(*args, **options)
        finally:
            busy.append(-1)

    monkeypatch.setattr(saving, "write_checkpoint", watched)
    train(Asking(saver(tmp_path), 1, 2, 3, 4, 5))
    assert len(steps_in(tmp_path)) == 6


def test_the_check_refuses_a_state_that_cannot_be_saved_and_writes_nothing(tmp_path: Path) -> None:
    class Odd(Asking):
        def state_dict(self) -> dict[str, Any]:
            return {"it": object()}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            pass

        def step_end(self, run: Run) -> None:
            assert run.find_part(Saver) is not None
            run.find_part(Saver).check_can_save(run)

    folder = tmp_path / "checkpoints"
    with pytest.raises(CheckpointError, match=r"hooks: Odd#0\.it: cannot be kept"):
        train(Odd(saver(folder)))
    assert not folder.exists()


class Checking(Asking):
    def step_end(self, run: Run) -> None:
        if run.step == 1 and run.find_part(Saver) is not None:
            run.find_part(Saver).check_can_save(run)


def test_the_size_of_checkpoints_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        train(Checking(saver(tmp_path / "deep" / "er", keep_last=2, keep_best=1)))
        train(Checking(saver(tmp_path, keep_last=None)))
        train(Checking(saver(None)))
    lines = [line for line in caplog.messages if line.startswith("checkpoints take")]
    assert len(lines) == 2
    assert " kB each, 4 at most; " in lines[0]
    assert "and all are kept; " in lines[1]


def test_too_little_disk_space_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Usage:
        free = 100

    monkeypatch.setattr(saving.shutil, "disk_usage", lambda path: Usage())
    train(Checking(saver(tmp_path, keep_last=1)))
    assert "has 100 B free; make room, or keep fewer with checkpoint.keep_last" in caplog.text


def test_a_hook_with_tensors_and_no_state_dict_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Averaging(Hook):
        def __init__(self) -> None:
            self.mean = torch.zeros(2)

        def step_end(self, run: Run) -> None: ...

    train(Checking(saver(tmp_path)), Averaging())
    assert caplog.text.count("Averaging holds tensors that a resumed run loses") == 1


def test_a_checkpoint_that_is_being_written_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread continues only when it is joined, or when leftovers are removed."""
    met = threading.Event()
    order: list[str] = []
    real = saving.write_checkpoint, saving.remove_leftovers, threading.Thread.join

    def write(*args: Any, **options: Any) -> Any:
        met.wait()
        manifest = real[0](*args, **options)
        order.append("written")
        return manifest

    def remove(folder: Path) -> list[str]:
        order.append("removed")
        met.set()
        return real[1](folder)

    def join(self: threading.Thread, *args: Any) -> None:
        if self.name == "checkpoint":
            met.set()
        real[2](self, *args)

    class Early(Asking):
        def step_end(self, run: Run) -> None:
            if run.step == 1 and run.find_part(Saver) is not None:
                run.find_part(Saver).save(run, "early")
                run.find_part(Saver).check_can_save(run)

    monkeypatch.setattr(saving, "write_checkpoint", write)
    monkeypatch.setattr(saving, "remove_leftovers", remove)
    monkeypatch.setattr(threading.Thread, "join", join)
    early = Early(saver(tmp_path))
    train(early)
    assert order[:2] == ["written", "removed"]
    assert steps_in(tmp_path)[0] == (1, 0, "early")
    assert early.saved[0] == ("step-1", "MainThread")


def test_a_run_that_may_roll_back_keeps_states_in_memory_without_a_folder() -> None:
    keeper = saver(None, serves_rollback=True, keep_last=2)
    train(Asking(keeper, 1, 2, 5))
    kept = [
        (manifest.step, manifest.epoch, manifest.reason) for manifest, _ in keeper.states_in_memory
    ]
    assert kept == [(5, 1, "asked"), (6, 2, "end")]
    plain = saver(None)
    train(Asking(plain, 1, 2))
    assert not plain.states_in_memory  # such a run does not roll back


@pytest.mark.parametrize("action", ["stop", "rollback"])
def test_a_diverged_run_is_not_saved(
    tmp_path: Path, action: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Sums):
        def batch_loss(self, out: Any, batch: Any) -> dict[str, Any]:
            loss, count = super().batch_loss(out, batch)["loss"]
            return {"loss": (loss * float("nan") if run.step == 2 else loss, count)}

    hooks = (Asking(saver(tmp_path), 2, 3, 4, reason="best"),)
    run = make_run(
        Broken(12),
        adder(),
        hooks=hooks,
        engine={"on_nonfinite": action},
        setting={"writer": Notes()},
        for_="2ep",
    )
    with caplog.at_level(logging.INFO):
        assert fit(run).reason == "diverged"
    assert steps_in(tmp_path)[-1][0] == 2
    assert "step 3 is not saved: its updates were skipped" in caplog.text
