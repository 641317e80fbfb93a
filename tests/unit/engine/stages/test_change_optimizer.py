"""Tests of changes of the optimizer between two steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from cells import remake
from engine.parts import Sums, adder, fit, make_run, numbers, weights
from engine.recorded_graph import RecordedGraph, record_graphs
from epochal.components.average import Ema
from epochal.components.schedules import Linear
from epochal.config import parse_duration
from epochal.engine import Run, TorchSchedule
from epochal.engine.interfaces.stage import Stage
from epochal.errors import ConfigError, TaskError
from epochal.records import NullWriter
from resume import Notes, assert_resumes_everywhere, follow, point_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.optim import Optimizer

STEPS, BORDER = 7, 3
GIVEN = {"make_optimizer": None}
"""The optimizer is given as an object."""


def adamw(model: nn.Module, **options: Any) -> Optimizer:
    return torch.optim.AdamW(model.parameters(), **{"lr": 0.01, **options})


def described(model: nn.Module, *, optimizer: Optimizer | None = None, **given: Any) -> Run:
    """A run of seven steps, with AdamW and a rate of 0.01, as a config describes it."""
    parts = {
        "optimizer": optimizer or adamw(model),
        "make_optimizer": remake,
        **given.pop("parts", {}),
    }
    options = {"for_": f"{STEPS}st", "sanity_batches": 0, "eval_every": 0, **given}
    return make_run(Sums(shuffle=False), model, parts=parts, **options)


def changed(run: Run, **change: Any) -> Run:
    """The run with a change of its optimizer after three steps."""
    run.on("step_end", lambda run: run.change_optim(**change) if run.step == BORDER else None)
    return run


def by_hand(change: Callable[..., Optimizer | None], clip: float | None = None) -> torch.Tensor:
    """A hand-written loop in which a function changes or replaces the optimizer at the border."""
    model = adder()
    optimizer: Any = adamw(model)
    loader = torch.utils.data.DataLoader(numbers(20), batch_size=4)
    batches = [batch for _ in range(2) for batch in loader][:STEPS]
    for step, (x, y) in enumerate(batches):
        if step == BORDER:
            optimizer = change(model, optimizer) or optimizer
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        if clip is not None and step >= BORDER:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
    return weights(model)


def test_other_options_keep_the_state_bit_for_bit() -> None:
    table: list[dict[str, Any]] = [
        {"lr": 0.05},
        {"weight_decay": 0.5},
        {"lr": 0.02, "betas": (0.5, 0.9)},
    ]
    for values in table:
        expected = by_hand(lambda _, one, new=values: one.param_groups[0].update(new))
        for given in ({}, GIVEN):
            model = adder()
            fit(changed(described(model, parts=given), **values))
            assert torch.equal(weights(model), expected), (values, given)


def test_the_state_can_be_reset() -> None:
    model = adder()
    fit(changed(described(model), lr=0.05, state="reset"))
    assert torch.equal(weights(model), by_hand(lambda model, _: adamw(model, lr=0.05)))


def test_another_optimizer_takes_over_at_the_exact_step() -> None:
    expected = by_hand(lambda model, _: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    for kind in ("SGD", torch.optim.SGD):
        model = adder()
        run = described(model, parts={"make_optimizer": by_last_name})
        fit(changed(run, type=kind, lr=0.1, momentum=0.9))
        assert torch.equal(weights(model), expected), kind


def by_last_name(model: nn.Module, changes: list[dict[str, Any]]) -> Any:
    """Like ``remake``, which takes short names of optimizers."""
    return remake(model, [{**one, "type": one["type"].rpartition(".")[2]} for one in changes])


def test_clipping_can_start_during_a_run() -> None:
    model = adder()
    fit(changed(described(model), clip=0.01))
    assert torch.equal(weights(model), by_hand(lambda _, one: one, clip=0.01))


def test_the_schedule_of_the_run_multiplies_a_changed_rate() -> None:
    rates = []
    run = described(adder(), parts={"schedule": Linear()})
    run.on("step_end", lambda run: rates.append(run.learning_rates["lr"]), priority=900)
    fit(changed(run, lr=0.07))
    factors = [1 - step / STEPS for step in range(1, STEPS + 1)]
    bases = [0.01] * (BORDER - 1) + [0.07] * (STEPS - BORDER + 1)
    assert rates == pytest.approx([a * b for a, b in zip(factors, bases, strict=True)])


def test_a_scheduler_of_torch_continues_with_the_same_rates() -> None:
    rates = []
    model = adder()
    optimizer = adamw(model)
    schedule = TorchSchedule(lr_scheduler.StepLR(optimizer, 2, gamma=0.5))
    run = described(model, optimizer=optimizer, parts={"schedule": schedule})
    run.on("step_end", lambda run: rates.append(run.learning_rates["lr"]), priority=900)
    fit(changed(run, weight_decay=0.3))
    assert rates == pytest.approx([0.01 * 0.5 ** (step // 2) for step in range(1, STEPS + 1)])


def test_a_scheduler_of_torch_cannot_continue_with_other_rates() -> None:
    for change in ({"lr": 0.5}, {"type": "SGD"}, {"state": "reset"}):
        model = adder()
        optimizer = adamw(model)
        schedule = TorchSchedule(lr_scheduler.StepLR(optimizer, 2))
        run = described(model, optimizer=optimizer, parts={"schedule": schedule})
        with pytest.raises(ConfigError, match="StepLR of torch cannot continue"):
            fit(changed(run, **change))


def test_groups_of_a_given_optimizer_keep_their_ratios() -> None:
    model = adder()
    first, *others = model.parameters()
    groups = [{"params": [first], "lr": 0.001}, {"params": others}]
    optimizer = torch.optim.AdamW(groups, lr=0.01)
    run = described(model, optimizer=optimizer, parts={"make_optimizer": None})
    rates: list[dict[str, float]] = []
    run.on("run_end", lambda run: rates.append(run.learning_rates))
    fit(changed(run, lr=0.1))
    assert rates == [{"lr/0": pytest.approx(0.01), "lr/1": 0.1}]


def test_a_change_that_cannot_be_made_is_refused() -> None:
    table: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        (GIVEN, {"wieght_decay": 1}, "has no 'wieght_decay' .*\n  did you mean 'weight_decay'"),
        (GIVEN, {"type": "SGD"}, "has no 'type' .*\n  describe the optimizer in the section optim"),
        (GIVEN, {"state": "rest"}, "unknown state 'rest'\n  did you mean 'reset'"),
        (GIVEN, {"clip": -1}, "optim.clip"),
        ({}, {"type": "SGD", "state": "keep"}, "cannot be kept from AdamW to SGD"),
    ]
    for given, change, message in table:
        with pytest.raises(ConfigError, match=message):
            fit(changed(described(adder(), parts=given), **change))


def test_a_run_that_is_not_training_cannot_be_changed() -> None:
    run = described(adder())
    with pytest.raises(TaskError, match="only a run that trains"):
        run.change_optim(lr=1)


def test_a_change_is_recorded() -> None:
    events = []

    class Notes(NullWriter):
        def event(self, kind: str, **facts: Any) -> None:
            events.append((kind, facts))

    fit(changed(described(adder(), setting={"writer": Notes()}), lr=0.5))
    assert ("optim_changed", {"step": BORDER, "changes": {"lr": 0.5}}) in events


def test_the_average_continues_over_a_change() -> None:
    plain, changing = Ema(decay=0.9), Ema(decay=0.9)
    fit(described(adder(), parts={"average": plain}))
    fit(changed(described(adder(), parts={"average": changing}), clip=1e9))
    for name, tensor in plain.state_tensors().items():
        assert torch.equal(tensor, changing.state_tensors()[name])


def test_a_change_survives_a_resume() -> None:
    plain: list[dict[str, Any]] = [{"lr": 0.2}, {"accumulate": 2}, {"state": "reset"}]
    table = [
        ({}, {"type": "SGD", "lr": 0.1}),
        *((parts, c) for parts in ({}, GIVEN) for c in plain),
    ]
    for parts, change in table:

        def build(setting: dict[str, Any], parts: Any = parts, change: Any = change) -> Run:
            return changed(described(adder(), parts=dict(parts), setting=setting), **change)

        assert assert_resumes_everywhere(build) >= 4, (parts, change)


class Changing(Sums):
    """Changes the optimizer when a stage starts."""

    def on_stage_start(self, run: Run, name: str) -> None:
        run.change_optim(**CHANGES[name])


CHANGES: dict[str, dict[str, Any]] = {
    "a": {"accumulate": 2},
    "b": {"type": "SGD", "lr": 0.1, "momentum": 0.9},
    "c": {"type": "AdamW", "lr": 0.02, "clip": 0.1},
}


def test_a_change_that_the_task_repeats_at_a_resume_counts_once() -> None:
    def build(setting: dict[str, Any]) -> Run:
        model = adder()
        stages = tuple(Stage(name=name, length=parse_duration("3st")) for name in "abc")
        parts = {"optimizer": adamw(model), "make_optimizer": remake, "stages": stages}
        return make_run(Changing(), model, parts=parts, setting=setting, sanity_batches=0)

    assert assert_resumes_everywhere(build) >= 9


@pytest.mark.parametrize("given", [{}, GIVEN])
def test_the_last_change_counts_after_a_resume(given: dict[str, Any]) -> None:
    def build(setting: dict[str, Any]) -> Run:
        run = described(adder(), parts=dict(given), setting=setting)
        run.on("run_start", lambda run: run.change_optim(clip=0.5, lr=0.5))
        return changed(run, clip=0.01, lr=0.02)

    assert assert_resumes_everywhere(build) >= 7


def test_a_change_that_fails_leaves_everything_as_it_was() -> None:
    table: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {"lrr": 1}),
        (GIVEN, {"lrr": 1, "clip": 0.001}),
        ({}, {"type": "SGD", "state": "keep", "accumulate": 2}),
        ({}, {"clip": -1}),
        (GIVEN, {"lr": 0.5, "clip": -1}),
    ]
    plain = adder()
    fit(described(plain))
    for given, change in table:
        tried = adder()

        def attempt(run: Run, change: dict[str, Any] = change) -> None:
            options = run.options.optim
            with pytest.raises((TypeError, ConfigError)):
                run.change_optim(**change)
            assert run.stage_progress.changes == []
            assert run.options.optim == options

        run = described(tried, parts=given)
        run.on("step_end", attempt)
        fit(run)
        assert torch.equal(weights(tried), weights(plain)), change


def test_accumulation_can_change_during_an_epoch() -> None:
    samples: list[int] = []
    run = described(adder())
    run.on("step_end", lambda run: samples.append(run.samples))
    fit(changed(run, accumulate=2))
    assert samples == [4, 8, 12, 20, 28, 36, 40]


class Poisoned(Sums):
    """Its second batch has no finite loss."""

    def batch_loss(self, out: dict[str, Any], batch: list[Any]) -> dict[str, Any]:
        loss, count = super().batch_loss(out, batch)["loss"]
        is_second = torch.equal(batch[0], numbers(20)[4:8][0])
        return {"loss": (loss * float("nan") if is_second else loss, count)}


def test_a_bad_step_before_the_change_is_reported_with_its_own_batches() -> None:
    events: list[dict[str, Any]] = []

    class Writer(NullWriter):
        def event(self, kind: str, **facts: Any) -> None:
            if kind == "nonfinite":
                events.append(facts)

    options = {"for_": "1ep", "engine": {"on_nonfinite": "skip"}, "setting": {"writer": Writer()}}
    fit(changed(make_run(Poisoned(shuffle=False), sanity_batches=0, **options), accumulate=2))
    assert [(one["step"], one["batches"]) for one in events] == [(2, [1])]


def test_a_captured_step_is_captured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def train(change: dict[str, Any], **given: Any) -> torch.Tensor:
        model = adder()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        parts = {"make_optimizer": remake_sgd}
        run = described(model, optimizer=optimizer, parts=parts, for_="16st", **given)
        run.on("step_end", lambda run: run.change_optim(**change) if run.step == 8 else None)
        fit(run)
        return weights(model)

    table: list[dict[str, Any]] = [{"clip": 0.01}, {"lr": 0.5}, {"type": "SGD", "momentum": 0.9}]
    eager = [train(change) for change in table]
    record_graphs(monkeypatch)
    for change, expected in zip(table, eager, strict=True):
        RecordedGraph.captures = 0
        assert torch.equal(train(change, engine={"step": "graph"}), expected), change
        assert RecordedGraph.captures == 2


def remake_sgd(model: nn.Module, changes: list[dict[str, Any]]) -> Any:
    return remake(model, [{"type": "SGD", "lr": 0.01}, *changes])


def test_a_change_that_a_hook_repeats_at_a_resume_is_recorded_once() -> None:
    steps: list[int] = []

    class Writer(Notes):
        def event(self, kind: str, **facts: Any) -> None:
            if kind == "optim_changed":
                steps.append(facts["step"])

    def build(setting: dict[str, Any]) -> Run:
        run = described(adder(), setting=setting)
        run.on("epoch_start", lambda run: run.change_optim(lr=0.1 / (run.epoch + 1)))
        return run

    whole = follow(build)
    fit(build({"writer": Writer(), "resume": point_of(whole.states[2])}))
    assert steps == [5]
