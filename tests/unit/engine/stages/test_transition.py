"""Tests of what a stage changes when it begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader

from cells import remake
from engine.parts import Sums, adder, fit, make_run, numbers, weights
from engine.recorded_graph import RecordedGraph, record_graphs
from engine.staged import Mixing, Plain, staged, terms
from epochal.components.schedules import Cosine, Linear
from epochal.engine import Hook, Run, TorchSchedule, Train
from epochal.engine.execute import describe_plan, execute
from epochal.engine.stages.transition import list_stages
from epochal.engine.state.saver import Saver
from resume import Keeper, assert_resumes_everywhere, follow, resume

if TYPE_CHECKING:
    from torch.optim import Optimizer


class Watch(Hook):
    """Notes something after every step."""

    priority = 900

    def __init__(self, read: Any) -> None:
        self.seen: list[Any] = []
        self._read = read

    def step_end(self, run: Run) -> None:
        self.seen.append(self._read(run))


def watched(read: Any, *given: tuple[str, dict[str, Any]], **more: Any) -> list[Any]:
    watch = Watch(read)
    fit(staged(*given, hooks=(watch,), **more))
    return watch.seen


def test_two_stages_train_like_a_hand_written_loop_bit_for_bit() -> None:
    model = adder()
    fit(
        staged(
            ("3st", {"freeze": ("0",)}), ("4st", {"unfreeze": ("0",), "optim": SGD}), model=model
        )
    )
    other = adder()
    other[0].requires_grad_(False)
    first = torch.optim.AdamW(other.parameters(), lr=0.01)
    second = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9)
    loader = DataLoader(numbers(20), batch_size=4)
    for step, (x, y) in enumerate([batch for _ in range(2) for batch in loader][:7]):
        if step == 3:
            other[0].requires_grad_(True)
        optimizer = first if step < 3 else second
        optimizer.zero_grad()
        nn.functional.mse_loss(other(x), y).backward()
        optimizer.step()
    assert torch.equal(weights(model), weights(other))


SGD = {"type": "SGD", "lr": 0.1, "momentum": 0.9}


def test_frozen_parameters_do_not_change_until_they_are_unfrozen() -> None:
    seen = watched(
        lambda run: run.model[0].weight.detach().clone(),
        *[("2st", {}), ("2st", {"freeze": ("0.*",)}), ("2st", {"unfreeze": ("0.weight",)})],
    )
    assert not torch.equal(seen[0], seen[1])
    assert torch.equal(seen[1], seen[3])
    assert not torch.equal(seen[3], seen[4])


def test_unfrozen_parameters_are_added_to_the_optimizer() -> None:
    model = adder()
    model[0].requires_grad_(False)
    held = [one for one in model.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(held, lr=0.01)
    before = weights(model[0])

    def counts(run: Run) -> int:
        return len(run.optimizer.param_groups[0]["params"])  # type: ignore[union-attr]

    seen = watched(
        counts,
        ("3st", {}),
        ("3st", {"unfreeze": ("0",)}),
        model=model,
        parts={"optimizer": optimizer},
    )
    assert seen == [2, 2, 2, 4, 4, 4]
    assert not torch.equal(weights(model[0]), before)
    states = optimizer.state[held[0]]
    assert float(states["step"]) == 6  # it was taken over


def test_a_schedule_of_a_stage_is_counted_from_its_start() -> None:
    rates = watched(
        lambda run: run.learning_rates["lr"],
        ("2st", {}),
        ("4st", {"schedule": lambda optimizer: Linear()}),
        ("2st", {}),
    )
    ours = [0.01, 0.01, 0.0075, 0.005, 0.0025, 0.0, 0.01, 0.01]
    assert rates[:1] + rates[2:5] + rates[6:] == pytest.approx(ours[:1] + ours[2:5] + ours[6:])


def test_the_schedule_of_the_run_continues_over_stages_without_one() -> None:
    plain = watched(lambda run: run.learning_rates["lr"], ("8st", {}), parts={"schedule": Cosine()})
    parts = {"schedule": Cosine()}
    borders = ("3st", {}), ("2st", {"optim": {"clip": 1.0}}), ("3st", {"freeze": ("0",)})
    assert watched(lambda run: run.learning_rates["lr"], *borders, parts=parts) == plain


def test_the_schedule_of_the_run_continues_after_that_of_a_stage() -> None:
    plain = watched(lambda run: run.learning_rates["lr"], ("8st", {}), parts={"schedule": Cosine()})
    borders = ("3st", {}), ("2st", {"schedule": step_down}), ("3st", {})
    rates = watched(lambda run: run.learning_rates["lr"], *borders, parts={"schedule": Cosine()})
    assert rates[:2] + rates[5:] == plain[:2] + plain[5:]
    assert rates[3] == pytest.approx(0.005)


def step_down(optimizer: Optimizer) -> TorchSchedule:
    return TorchSchedule(lr_scheduler.StepLR(optimizer, 1, gamma=0.5))


def test_another_batch_size_starts_a_new_epoch() -> None:
    stages = ("2st", {}), ("2ep", {"batch_size": 10})
    seen = watched(lambda run: (run.epoch, run.samples, run.limits.steps), *stages)
    positions = [(0, 4), (0, 8), (1, 18), (1, 28), (2, 38), (2, 48)]
    assert seen == [(*position, 6) for position in positions]


def test_the_data_of_a_stage_are_built_when_it_starts() -> None:
    made: list[str] = []

    def build() -> DataLoader[Any]:
        made.append("made")
        return DataLoader(numbers(6, seed=3), batch_size=2)

    run = staged(("1ep", {}), ("1ep", {"data": {"train": build}}), ("1ep", {}))
    run.on("epoch_start", lambda run, split: made.append(f"epoch {run.epoch}"))
    result = fit(run)
    assert made == ["epoch 0", "made", "epoch 1", "epoch 2"]
    assert result.steps == 5 + 3 + 3


def test_a_run_resumes_in_the_data_of_its_stage_bit_for_bit() -> None:
    def build(setting: dict[str, Any]) -> Run:
        data = {"train": lambda: DataLoader(numbers(6, seed=3), batch_size=2, shuffle=True)}
        later = {"val": lambda: DataLoader(numbers(9, seed=4), batch_size=2)}
        return staged(
            *[("3st", {}), ("1ep", {"data": data}), ("1ep", {"data": later, "batch_size": 3})],
            setting=setting,
            eval_every="1st",
        )

    assert assert_resumes_everywhere(build) == 9


def test_the_task_gets_its_arguments_at_the_start_of_each_stage() -> None:
    task = Mixing()
    given = ("1st", {}), ("1st", {"task": {"mix": 0.5}}), ("1st", {"task": {"mode": "late"}})
    fit(staged(*given, task=task))
    assert task.calls == [("s0", 0.0, ""), ("s1", 0.5, ""), ("s2", 0.5, "late")]
    task = Mixing()
    fit(make_run(task, for_="1st"))
    assert task.calls == [("main", 0.0, "")]  # a run without stages has one


def test_the_task_gets_its_arguments_at_a_resume() -> None:
    calls: list[tuple[str, float]] = []

    class Telling(Sums):
        def on_stage_start(self, name: str, mix: float = 0.0) -> None:
            calls.append((name, mix))

    def build(setting: dict[str, Any]) -> Run:
        given = ("2st", {}), ("2st", {"task": {"mix": 0.5}})
        return staged(*given, task=Telling(), setting=setting)

    whole = follow(build)
    calls.clear()
    assert resume(build, whole.states[2]).digests == whole.digests
    assert calls == [("s1", 0.5)]


def test_the_stage_starts_before_the_first_evaluation() -> None:
    class Ready(Sums):
        def on_stage_start(self) -> None:
            self.scale = 2.0

        def post_batch_forward(self, out: dict[str, Any], batch: Any) -> dict[str, Any]:
            return {"sum": out["sum"] * self.scale}

    assert fit(make_run(Ready(), for_="1st", eval_at_start=True)).ok


def test_loss_weights_stay_until_a_later_stage_changes_them() -> None:
    seen = watched(
        lambda run: dict(run.loss.weights),
        *[("1st", {}), ("1st", {"loss": {"far": 0.5}}), ("1st", {"loss": {"near": 0.0}})],
        task=Plain(),
        parts={"loss": terms()},
    )
    assert seen == [{"near": 1, "far": 0}, {"near": 1, "far": 0.5}, {"near": 0, "far": 0.5}]


def test_a_run_that_is_preempted_between_stages_resumes_in_the_right_one() -> None:
    def build(setting: dict[str, Any]) -> Run:
        return staged(
            *[("3st", {}), ("3st", {"optim": SGD, "batch_size": 5}), ("1ep", {})], setting=setting
        )

    whole = follow(build)
    for step in (3, 6):
        kept = preempt(build, step)
        assert (kept["data"]["step"], kept["stage"]["index"]) == (step, step // 3 - 1)
        assert resume(build, kept).digests == whole.digests


def test_a_run_that_is_preempted_between_epochs_and_stages_loses_no_epoch() -> None:
    for more in ({}, {"batch_size": 4}):

        def build(setting: dict[str, Any], more: dict[str, Any] = more) -> Run:
            return staged(*[("5st", {}), ("2ep", {"optim": SGD, **more})], setting=setting)

        whole, kept = follow(build), preempt(build, 5)
        assert kept["data"]["is_in_epoch"]
        assert resume(build, kept).digests == whole.digests, more


def preempt(build: Any, step: int) -> dict[str, Any]:
    """The state of a run that is preempted after a step, before anything else happens."""
    keeper = Keeper()
    run = build({})
    run.set_part(Saver, keeper)

    def leave(run: Run) -> None:
        if run.step == step:
            run.stop("preempted", status="preempted")

    run.on("step_end", leave, priority=0)
    execute(run, Train())
    return keeper.kept[-1]


def test_a_new_stage_captures_the_step_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def train(**given: Any) -> torch.Tensor:
        model = adder()
        own = {"optimizer": torch.optim.SGD(model.parameters(), lr=0.01), "make_optimizer": sgd}
        borders = ("6st", {"freeze": ("0",)}), ("7st", {"unfreeze": ("0",), "optim": {"clip": 0.1}})
        task = Mixing()
        third = ("9st", {"task": {"mix": 0.5}, "batch_size": 5, "optim": {"lr": 0.05}})
        fit(staged(*borders, third, task=task, model=model, parts=own, **given))
        return weights(model)

    eager = train()
    record_graphs(monkeypatch)
    assert torch.equal(train(engine={"step": "graph"}), eager)
    assert RecordedGraph.captures == 3


def sgd(model: nn.Module, changes: list[dict[str, Any]]) -> Any:
    return remake(model, [{"type": "SGD", "lr": 0.01}, *changes])


def test_the_plan_lists_every_stage_with_its_start_and_its_changes() -> None:
    run = staged(
        ("3st", {"freeze": ("0",)}),
        ("2ep", {"optim": {"lr": 0.1}, "schedule": step_down, "batch_size": 10}),
        ("9sa", {"data": {"train": Sums}, "task": {}}),
        ("1ep", {}),
    )
    describe_plan(run, Train())
    rows = [(one.first_step, one.end, one.changes) for one in list_stages(run)]
    assert rows == [
        (0, "3st", ("freeze 0",)),
        (3, "2ep", ("optim.lr=0.1", "schedule", "batch_size=10")),
        (7, "9sa", ("data.train",)),
        (None, "1ep", ()),
    ]
    assert list_stages(make_run()) == []
