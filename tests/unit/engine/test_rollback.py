"""Tests of rollbacks to an earlier state after a nonfinite gradient."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from engine.parts import Hands, Sums, adder, fit, make_run, weights
from engine.recorded_graph import RecordedGraph, record_graphs
from engine.staged import staged
from engine.step.test_nonfinite_watch import Poisoned
from epochal.checkpoint import read_checkpoint
from epochal.components.average import Ema, Swa
from epochal.config.duration import parse_duration
from epochal.engine import Hook, rollback
from epochal.engine.interfaces.options import CheckpointOptions
from epochal.engine.interfaces.stage import Stage
from epochal.engine.measure.meter import Meter
from epochal.engine.state.saver import Saver
from epochal.hooks.checkpointing import Checkpointing
from epochal.records.folder.checkpoint_manifests import (
    DAMAGED_SUFFIX,
    TENSORS_FILE,
    find_checkpoints,
)
from resume import Notes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from epochal.engine import Average
    from epochal.engine.run.engine_run import EngineRun

FIRST_EPOCH = tuple((0, index) for index in range(12))


class EventRecorder(Notes):
    """Keeps events too, and what counts after going back."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[dict[str, Any]] = []
        self.attempts: list[dict[str, Any]] = []

    def event(self, kind: str, **data: object) -> None:
        self.events.append({"kind": kind, **data})

    def go_back(self, **facts: Any) -> int:
        self.attempts.append(facts)
        return len(self.attempts)

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [one for one in self.events if one["kind"] == kind]


def rolling(
    task: object,
    folder: Path | None,
    *hooks: Hook,
    checkpoint: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[EngineRun, EventRecorder]:
    model, recorder = adder(), EventRecorder()
    parts = {"optimizer": torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, fused=True)}
    choices = {"every": "4st", "keep_last": None, "name": "step-{step}", **(checkpoint or {})}
    saving = Checkpointing(CheckpointOptions(**choices))
    given = {
        "for_": "2ep",
        "setting": {"writer": recorder, "checkpoint_dir": folder},
        "engine": {"on_nonfinite": "rollback"},
        "parts": parts | options.pop("parts", {}),
    }
    return make_run(task, model, hooks=(saving, *hooks), **(given | options)), recorder


def saved(folder: Path) -> list[tuple[int, int]]:
    return [(one.attempt, one.step) for one in find_checkpoints(folder)]


def test_a_run_rolls_back_to_the_newest_state_and_skips_the_batches_since(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run, recorder = rolling(Poisoned((0, 6)), tmp_path)
    result = fit(run)
    assert (result.status, result.reason) == ("finished", "max_epochs")
    # Of 24 batches three were left out, and of these the last one was bad.
    assert (result.steps, result.epochs, result.samples) == (21, 2, 84)
    assert recorder.of("rollback") == [
        {
            "kind": "rollback",
            "checkpoint": "step-4",
            "step": 7,
            "to": 4,
            "left_out": {"from": {"epoch": 1, "batch": 4}, "to": {"epoch": 1, "batch": 6}},
        }
    ]
    assert recorder.attempts == [
        {"checkpoint": "step-4", "origin": 0, "step": 4, "points": recorder.attempts[0]["points"]}
    ]
    assert saved(tmp_path) == [(0, 0), (0, 4), (1, 8), (1, 12), (1, 16), (1, 20), (1, 21)]
    assert (
        "rolling back from step 7 to step 4 (step-4), continuing after batch 6 of epoch 1: "
        "rollback 1 of at most 3" in caplog.text
    )


def test_steps_after_a_rollback_equal_a_run_without_the_batches(tmp_path: Path) -> None:
    class Choosing(Poisoned):
        """Gives the batches of a list, and nothing else."""

        def __init__(self, *wanted: int) -> None:
            super().__init__(shuffle=False)
            batches = list(self.train_loader)
            self.train_loader = [batches[index] for index in wanted]  # type: ignore[assignment]

    run, _ = rolling(Poisoned((0, 6), shuffle=False), tmp_path, for_="1ep")
    model = run.model
    fit(run)
    other, _ = rolling(Choosing(0, 1, 2, 3, 7, 8, 9, 10, 11), None, for_="1ep")
    expected = other.model
    fit(other)
    assert torch.equal(weights(model), weights(expected))


def test_the_fourth_rollback_ends_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run, recorder = rolling(Poisoned(*FIRST_EPOCH[4:]), tmp_path)
    model, at_four = run.model, []
    run.on("step_end", lambda run: at_four.append(weights(run.model)) if run.step == 4 else None)
    result = fit(run)
    assert (result.status, result.reason) == ("diverged", "diverged")
    assert [one["to"] for one in recorder.of("rollback")] == [4, 4, 4]
    assert torch.equal(weights(model), at_four[0])
    assert result.message == (
        "the gradient of step 5 is not finite, and the run rolled back 3 times already; "
        "the weights before that step are kept\n"
        "  try a smaller optim.lr, or optim.clip=1.0; --debug finds its origin"
    )
    assert result.message in caplog.text


def test_a_diverged_state_is_never_saved(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        run, _ = rolling(Poisoned(*FIRST_EPOCH[5:]), tmp_path, checkpoint={"every": "1st"})
        fit(run)
    assert {step for _, step in saved(tmp_path)} == set(range(6))
    for manifest in find_checkpoints(tmp_path):
        state, _ = read_checkpoint(manifest.path)
        assert not state["updater"]["tensors"]["has_diverged"]
    assert caplog.text.count("is not saved: its updates were skipped") == 1


def test_a_state_with_nonfinite_weights_is_never_saved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Breaking(Hook):
        """Spoils the weights just before they are saved, once."""

        has_run_user_code = False

        def step_end(self, run: EngineRun) -> None:
            if run.step == 8 and not self.has_run_user_code:
                self.has_run_user_code = True
                with torch.no_grad():
                    next(run.model.parameters()).fill_(float("nan"))

    run, recorder = rolling(Poisoned(), tmp_path, Breaking())
    assert fit(run).status == "finished"
    assert [(one["step"], one["to"]) for one in recorder.of("rollback")] == [(9, 4)]
    assert "step 8 is not saved: its weights are not finite" in caplog.text


def test_without_a_finite_state_the_run_ends(caplog: pytest.LogCaptureFixture) -> None:
    model = adder()
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    parts = {"optimizer": torch.optim.SGD(model.parameters(), lr=0.05, fused=True)}
    hooks = (Checkpointing(),)
    engine = {"on_nonfinite": "rollback"}
    run = make_run(Poisoned(), model, hooks=hooks, parts=parts, engine=engine, for_="1ep")
    result = fit(run)
    assert (result.status, result.reason) == ("diverged", "diverged")
    assert (
        "and there is no earlier state of this stage whose weights are finite; the weights before"
        in caplog.text
    )


def test_without_checkpoints_the_run_ends(caplog: pytest.LogCaptureFixture) -> None:
    run = make_run(Poisoned((0, 2)), engine={"on_nonfinite": "rollback"}, for_="1ep")
    assert fit(run).reason == "diverged"
    assert "and the run saves no checkpoints; the weights before" in caplog.text


def test_a_damaged_checkpoint_is_set_aside_for_the_one_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Damaging(Hook):
        def step_end(self, run: EngineRun) -> None:
            if run.step == 6 and run.find_part(Saver) is not None:
                run.find_part(Saver).finish(run)
                file = tmp_path / "step-4" / TENSORS_FILE
                if file.exists():
                    file.write_bytes(file.read_bytes()[:-1])

    run, recorder = rolling(Poisoned((0, 6)), tmp_path, Damaging())
    assert fit(run).status == "finished"
    assert [one["to"] for one in recorder.of("rollback")] == [0]
    assert (tmp_path / f"step-4{DAMAGED_SUFFIX}").is_dir()
    assert "renamed to step-4.damaged" in caplog.text


def test_a_state_may_be_epochs_away(tmp_path: Path) -> None:
    epochs: list[tuple[int, int]] = []
    run, recorder = rolling(Poisoned((2, 3)), tmp_path, checkpoint={"every": "15st"}, for_="4ep")
    run.on("epoch_start", lambda run: epochs.append((run.epoch, run.step)))
    result = fit(run)
    assert recorder.of("rollback")[0]["left_out"] == {
        "from": {"epoch": 2, "batch": 3},
        "to": {"epoch": 3, "batch": 3},
    }
    # Epoch 2 is never finished: the run continues in epoch 3.
    assert epochs == [(0, 0), (1, 12), (2, 24), (2, 15), (3, 23)]
    assert (result.epochs, result.steps) == (4, 15 + 8 + 12)


@pytest.mark.parametrize("where", ["loss", "gradient", "weights"])
@pytest.mark.parametrize("action", ["skip", "stop", "rollback"])
def test_nonfinite_values_never_reach_weights_or_checkpoints(
    tmp_path: Path, where: str, action: str
) -> None:
    class Spoiling(Sums):
        def __init__(self) -> None:
            super().__init__(48, val=0)
            self.has_run_user_code = False

        def batch_loss(self, out: Any, batch: Any) -> dict[str, Any]:
            loss, count = super().batch_loss(out, batch)["loss"]
            if run.step == 6 and (run.epoch, run.batch_index) == (0, 6):
                factor = float("nan")
                if where == "loss":
                    loss = loss * factor
                elif where == "gradient" and loss.requires_grad:
                    loss.register_hook(lambda gradient: gradient * factor)
                elif where == "weights" and not spoilt:
                    spoilt.append(True)
                    with torch.no_grad():
                        next(run.model.parameters())[0] = factor
                    loss = loss * factor
            return {"loss": (loss, count)}

    spoilt: list[bool] = []
    task = Spoiling()
    run, recorder = rolling(task, tmp_path, engine={"on_nonfinite": action}, for_="1ep")
    model = run.model
    result = fit(run)
    assert recorder.of("nonfinite")[0]["step"] == 7
    if where != "weights" or action == "rollback":
        assert weights(model).isfinite().all()
    is_lost = action == "stop" or (action == "skip" and where == "weights")
    assert result.reason == ("diverged" if is_lost else "max_epochs")
    for manifest in find_checkpoints(tmp_path):
        state, _ = read_checkpoint(manifest.path)
        is_good = all(one.isfinite().all() for one in state["model"]["weights"].values())
        assert is_good or (where, action) == ("weights", "skip")


class Stopping(Hook):
    """Stops the run after the bad step, before it is detected."""

    def __init__(self, status: str) -> None:
        self.status, self.count = status, 0

    def step_end(self, run: EngineRun) -> None:
        self.count += 1
        if self.count == 7:
            run.stop("enough", status=self.status)


def test_a_stop_after_the_bad_step_is_undone(tmp_path: Path) -> None:
    run, recorder = rolling(Poisoned((0, 6)), tmp_path, Stopping("stopped"))
    assert (fit(run).reason, len(recorder.attempts)) == ("max_epochs", 1)


def test_an_interrupt_prevents_a_rollback(tmp_path: Path) -> None:
    run, recorder = rolling(Poisoned((0, 6)), tmp_path, Stopping("interrupted"))
    result = fit(run)
    assert (result.status, result.reason, recorder.attempts) == ("interrupted", "enough", [])
    assert saved(tmp_path)[-1] == (0, 4)


def test_a_signal_during_a_rollback_ends_the_run(tmp_path: Path) -> None:
    run, recorder = rolling(Poisoned((0, 6)), tmp_path)
    go_back = recorder.go_back

    def preempted(**facts: Any) -> int:
        run.stop("preempted", status="preempted")
        run.request_save("preempted")
        return go_back(**facts)

    recorder.go_back = preempted  # type: ignore[method-assign]
    result = fit(run)
    assert (result.status, result.steps) == ("preempted", 4)
    newest = find_checkpoints(tmp_path)[-1]
    assert (newest.attempt, newest.step, newest.reason) == (1, 4, "preempted")
    state, _ = read_checkpoint(newest.path)
    assert state["data"]["position"] == 7
    assert len(state["rollbacks"]) == 1


class Late(Hook):
    """Makes what is asked of the device arrive a step later, as it does on one."""

    priority = 900

    def run_start(self, run: EngineRun) -> None:
        run.meter = Meter("cpu", is_async=True, wake=run.plan.wake)
        run.bind()


def test_due_calls_do_not_run_once_divergence_is_known(tmp_path: Path) -> None:
    seen: list[int] = []
    run, _ = rolling(Poisoned((0, 6)), tmp_path, Late(), checkpoint={"every": 0}, for_="1ep")
    run.on("step_end", lambda run: seen.append(run.step))
    fit(run)
    # Requested after step 10, known after step 11, after which no hook is called.
    assert seen == [*range(1, 11), *range(1, 6)]


def test_attributes_of_task_and_model_are_restored(tmp_path: Path) -> None:
    class Counting(Poisoned):
        def __init__(self) -> None:
            super().__init__((0, 6))
            self.batches, self.words, self.mean = 0, ["a"], None

        def batch_forward(self, model: nn.Module, batch: Any) -> Any:
            if model.training:
                self.batches += 1
                self.words = [*self.words, "b"]
                self.mean = batch[0].mean()
                self.new = 1
            return super().batch_forward(model, batch)

    task = Counting()
    run, _ = rolling(task, tmp_path, checkpoint={"every": 0}, for_="1ep")
    found: list[Any] = []
    run.on("checkpoint_loaded", lambda: found.append((task.batches, task.words, task.mean)))
    run.on("checkpoint_loaded", lambda: found.append(hasattr(task, "new")))
    fit(run)
    assert found == [(0, ["a"], None), False]
    assert task.batches == 5


def test_a_rollback_does_not_turn_back_the_clock(tmp_path: Path) -> None:
    hands = Hands()
    run, _ = rolling(Poisoned((0, 6)), tmp_path)
    run.clock.now = run.clock.times._now = hands
    seen: list[float] = []

    def tick(run: EngineRun) -> None:
        hands.seconds += 1
        seen.append(run.clock.seconds)

    run.on("step_end", tick)
    result = fit(run)
    assert seen == sorted(seen)
    assert (result.steps, result.seconds, result.redone_seconds) == (21, 25, 4)


def test_checkpoints_of_abandoned_attempts_are_not_used(tmp_path: Path) -> None:
    first, _ = rolling(Poisoned(), tmp_path, for_="1ep")
    fit(first)
    (four,) = [one for one in find_checkpoints(tmp_path) if one.step == 4]
    state, _ = read_checkpoint(four.path)
    point = rollback.ResumePoint(state=state, manifest=four, path=four.path)
    setting = {"checkpoint_dir": tmp_path, "resume": point, "facts": {"attempt": 1}}
    recorder = EventRecorder()
    again, _ = rolling(Poisoned((0, 9)), tmp_path, setting=setting | {"writer": recorder})
    again.events.add_hook(_Without(8))
    fit(again)
    assert recorder.of("rollback")[0]["to"] == 4


class _Without(Hook):
    """Takes the checkpoint of this attempt away, so that only that of the other one is left."""

    def __init__(self, step: int) -> None:
        self.step = step

    def checkpoint_saved(self, run: EngineRun, path: Path) -> None:
        if path.name == f"step-{self.step}~2" and not run.rollbacks:
            path.rename(path.with_name(path.name + DAMAGED_SUFFIX))


class Rotten(Sums):
    """One of its samples is not a number, which a captured step meets without asking Python."""

    def __init__(self, sample: int) -> None:
        super().__init__(48, val=0, shuffle=False)
        self.train_loader.dataset.tensors[0][sample] = float("nan")  # type: ignore[attr-defined]


@pytest.mark.parametrize("every", [0, "4st"])
@pytest.mark.parametrize("sample", [1, 26, 47])
def test_captured_steps_roll_back_like_eager_ones(
    sample: int,
    every: object,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """At the very start an optimizer has no state, so going back there gives it other tensors."""
    record_graphs(monkeypatch)

    def train(step: str) -> torch.Tensor:
        model = adder()
        optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.05), fused=True)
        hooks = (Checkpointing(CheckpointOptions(every=every)), Late())
        engine = {"on_nonfinite": "rollback", "step": step}
        parts = {"optimizer": optimizer}
        run = make_run(Rotten(sample), model, hooks=hooks, parts=parts, engine=engine, for_="2ep")
        assert fit(run).status == "finished"
        return weights(model)

    expected = train("eager")
    with caplog.at_level(logging.INFO):
        assert torch.equal(train("graph"), expected)
    assert RecordedGraph.replays
    assert "captured again, since the state of the run changed" in caplog.text


@pytest.mark.parametrize(
    "average", [lambda: Ema(decay=0.5, warmup=True), lambda: Swa(start="3st", every="2st")]
)
@pytest.mark.parametrize("sample", [26, 46])
def test_captured_steps_roll_back_within_their_stage_with_their_average(
    average: Callable[[], Average], sample: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_graphs(monkeypatch)
    changes: list[dict[str, Any]] = [{}, {"optim": {"lr": 0.02, "accumulate": 2}}]
    changes.append({"optim": {"accumulate": 1}, "batch_size": 6})

    def train(step: str) -> list[torch.Tensor]:
        model, own = adder(), average()
        optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.05), fused=True)
        parts = {"optimizer": optimizer, "average": own, "make_optimizer": None}
        borders = zip(("9st", "1ep", "9st"), changes, strict=True)
        run = staged(
            *borders,
            task=Rotten(sample),
            model=model,
            parts=parts,
            hooks=(Checkpointing(CheckpointOptions(every="4st")),),
            engine={"on_nonfinite": "rollback", "step": step},
        )
        assert fit(run).status == "finished"
        assert run.rollbacks
        return [weights(model), *own.state_tensors().values()]

    expected = train("eager")
    assert all(map(torch.equal, train("graph"), expected))
    assert RecordedGraph.replays


def test_a_run_rolls_back_only_within_its_stage(tmp_path: Path) -> None:
    stages = (
        Stage(name="first", length=parse_duration("6st")),
        Stage(name="second", length=parse_duration("10st"), optim={"lr": 0.01}),
    )
    run, recorder = rolling(Poisoned((0, 6)), tmp_path, parts={"stages": stages})
    rates: list[float] = []
    run.on("step_end", lambda run: rates.append(run.learning_rates["lr"]))
    assert fit(run).status == "finished"
    # The stage begins after step 6, and its very first step is bad.
    assert [(one["step"], one["to"]) for one in recorder.of("rollback")] == [(7, 6)]
    assert rates[:6] == [0.05] * 6
    assert set(rates[6:]) == {0.01}


def test_changes_of_hooks_during_a_rollback_do_not_count(tmp_path: Path) -> None:
    run, recorder = rolling(Poisoned((0, 6)), tmp_path, for_="1ep")
    clips = iter([1.0, 0.001])
    found: list[object] = []
    run.on("epoch_start", lambda run: run.change_optim(clip=next(clips)))
    run.on("step_end", lambda run: found.append(run.options.optim.clip))
    fit(run)
    assert len(recorder.of("rollback")) == 1
    assert set(found) == {1.0}
