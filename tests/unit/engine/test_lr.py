"""Tests of the one owner of the learning rate."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from engine.parts import Sums, adder, fit, make_run
from epochal.engine import Monitor, Run, Schedule, TorchSchedule
from epochal.engine.lr import FactorRate, FixedRate, build_rate
from epochal.engine.rates import read_rates
from epochal.errors import ConfigError


class Falling(Schedule):
    def factor(self, step: int, total_steps: int | None) -> float:
        return 1 - step / (total_steps or 100)


def two_groups() -> torch.optim.Optimizer:
    groups = [
        {"params": [nn.Parameter(torch.zeros(1))], "lr": 1.0, "name": "body"},
        {"params": [nn.Parameter(torch.zeros(1))], "lr": 0.1},
    ]
    return torch.optim.SGD(groups)


def rates_of(schedule: object, optimizer: torch.optim.Optimizer, **options: object) -> list[float]:
    """The rate that each step is taken with."""
    used: list[float] = []
    model = optimizer.model
    optimizer.register_step_pre_hook(lambda one, *_: used.append(float(one.param_groups[0]["lr"])))
    parts = {"optimizer": optimizer, "schedule": schedule}
    fit(make_run(Sums(8), model, parts=parts, **{"for_": "4ep", **options}))
    return used


def sgd() -> torch.optim.Optimizer:
    model = adder()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    optimizer.model = model
    return optimizer


def test_the_factor_multiplies_the_base_rate_of_each_group() -> None:
    optimizer = two_groups()
    rate = FactorRate(Falling(), optimizer, step=0, total_steps=10)
    assert read_rates(optimizer) == {"lr/body": 1.0, "lr/1": 0.1}
    rate.after_step(5)
    assert read_rates(optimizer) == {"lr/body": 0.5, "lr/1": pytest.approx(0.05)}


def test_the_first_step_has_the_factor_of_zero_and_each_step_its_own() -> None:
    used = rates_of(Falling(), sgd())
    assert used == [1 - step / 8 for step in range(8)]


def test_a_resumed_schedule_stands_where_it_stood_without_an_extra_step_defect_3() -> None:
    before, after = sgd(), sgd()
    rate = FactorRate(Falling(), before, step=0, total_steps=10)
    for step in range(1, 4):
        rate.after_step(step)
    after.load_state_dict(before.state_dict())
    FactorRate(Falling(), after, step=3, total_steps=10)
    assert read_rates(after) == read_rates(before) == {"lr": 0.7}


def test_a_rate_that_is_a_tensor_is_filled_in_place() -> None:
    tensor = torch.tensor(1.0)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=tensor)
    FactorRate(Falling(), optimizer, step=5, total_steps=10)
    assert optimizer.param_groups[0]["lr"] is tensor
    assert read_rates(optimizer) == {"lr": 0.5}


def test_torch_schedulers_advance_once_per_step() -> None:
    optimizer = sgd()
    schedule = TorchSchedule(lr_scheduler.ExponentialLR(optimizer, 0.5))
    assert rates_of(schedule, optimizer, for_="2ep") == [1.0, 0.5, 0.25, 0.125]


def test_torch_schedulers_advance_once_per_epoch_when_told() -> None:
    optimizer = sgd()
    schedule = TorchSchedule(lr_scheduler.ExponentialLR(optimizer, 0.5), unit="epoch")
    assert rates_of(schedule, optimizer, for_="3ep") == [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]


def test_torch_schedulers_advance_once_per_evaluation_when_told() -> None:
    optimizer = sgd()
    schedule = TorchSchedule(lr_scheduler.ExponentialLR(optimizer, 0.5), unit="eval")
    used = rates_of(schedule, optimizer, for_="2ep", eval_every="3st", eval_at_start=True)
    assert used == [1.0, 1.0, 1.0, 0.5]


def rates_by_plateau(monitor: str, values: list[float], **options: Any) -> dict[str, float]:
    """The rates after evaluations that came to these values."""
    optimizer = sgd()
    plateau = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0, **options)
    parts = {
        "optimizer": optimizer,
        "schedule": TorchSchedule(plateau),
        "monitor": Monitor.parse(monitor),
    }
    task, left = Sums(8), iter(values)
    task.epoch_metric = lambda split: {"x": next(left)}
    fit(make_run(task, optimizer.model, parts=parts, for_=f"{len(values)}ep", sanity_batches=0))
    return read_rates(optimizer)


@pytest.mark.parametrize("threshold_mode", ["rel", "abs"])
def test_a_plateau_leaves_the_rate_while_the_monitored_value_gets_better(
    threshold_mode: str,
) -> None:
    rising = [0.1, 0.2, 0.4, 0.8]
    mode = {"threshold_mode": threshold_mode}
    assert rates_by_plateau("+val/x", rising, **mode) == {"lr": 1.0}
    assert rates_by_plateau("-val/x", rising[::-1], **mode) == {"lr": 1.0}


@pytest.mark.parametrize("monitor", ["+val/x", "-val/x"])
def test_a_plateau_lowers_the_rate_when_the_monitored_value_stays(monitor: str) -> None:
    assert rates_by_plateau(monitor, [1.0] * 4) == {"lr": 0.125}


def test_a_plateau_that_was_told_the_way_of_the_monitor_is_as_it_was() -> None:
    assert rates_by_plateau("+val/x", [1.0, 2.0, 1.5], mode="max") == {"lr": 0.5}


def test_a_plateau_that_contradicts_the_monitor_is_refused() -> None:
    what = r"schedule.mode: mode 'max' contradicts monitor '-val/x'"
    with pytest.raises(ConfigError, match=what):
        rates_by_plateau("-val/x", [1.0], mode="max")


def test_a_plateau_without_a_monitor_is_refused_before_the_first_step() -> None:
    optimizer = sgd()
    schedule = TorchSchedule(lr_scheduler.ReduceLROnPlateau(optimizer))
    with pytest.raises(ConfigError, match=r"schedule: ReduceLROnPlateau needs a monitored metric"):
        build_rate(schedule, optimizer, step=0, total_steps=None)


@pytest.mark.parametrize(("val", "eval_every"), [(0, "1ep"), (6, "1ep"), (6, "1st"), (6, 0)])
def test_a_plateau_of_a_training_metric_goes_by_epochs(val: int, eval_every: object) -> None:
    optimizer = sgd()
    plateau = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
    values: list[float] = []
    advance = plateau.step
    plateau.step = lambda value: (values.append(value), advance(value))

    class Flat(Sums):
        def batch_loss(self, out: Any, batch: Any) -> Any:
            return {"loss": (out["sum"].mean() * 0 + 1, len(batch[1]))}

    parts = {
        "optimizer": optimizer,
        "schedule": TorchSchedule(plateau),
        "monitor": Monitor.parse("-train/loss"),
    }
    task = Flat(8, val=val)
    fit(make_run(task, optimizer.model, parts=parts, for_="4ep", eval_every=eval_every))
    assert values == [1.0] * 4
    assert read_rates(optimizer) == {"lr": 0.125}


def test_a_plateau_does_not_count_the_evaluation_before_the_first_step() -> None:
    optimizer = sgd()
    plateau = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    parts = {
        "optimizer": optimizer,
        "schedule": TorchSchedule(plateau),
        "monitor": Monitor.parse("-val/mae"),
    }
    fit(make_run(Sums(8), optimizer.model, parts=parts, for_="1ep", eval_at_start=True))
    assert plateau.last_epoch == 1


def test_a_group_that_comes_later_has_its_rate_times_the_factor_from_its_first_update() -> None:
    model = adder()
    optimizer = torch.optim.SGD(model[0].parameters(), lr=1.0)
    used: list[dict[str, float]] = []
    optimizer.register_step_pre_hook(lambda one, *_: used.append(read_rates(one)))
    parts = {"optimizer": optimizer, "schedule": Falling()}
    run = make_run(Sums(16), model, parts=parts, for_="4st")

    def add(run: Run) -> None:
        if run.step == 2:
            optimizer.add_param_group({"params": model[3].parameters(), "lr": 0.1})

    run.on("step_end", add)
    fit(run)
    assert used[:2] == [{"lr": 1.0}, {"lr": 0.75}]
    assert used[2] == {"lr/0": 0.5, "lr/1": pytest.approx(0.05)}
    assert used[3] == {"lr/0": 0.25, "lr/1": pytest.approx(0.025)}


@pytest.mark.parametrize(
    "build",
    [
        lambda optimizer: lr_scheduler.ExponentialLR(optimizer, 0.5),
        lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 8),
        lambda optimizer: lr_scheduler.PolynomialLR(optimizer, 8),
    ],
)
def test_schedulers_of_torch_go_on_with_a_group_that_comes_later(build: Any) -> None:
    optimizer = two_groups()
    rate = build_rate(TorchSchedule(build(optimizer)), optimizer, step=0, total_steps=None)
    optimizer.step()
    rate.after_step(1)
    optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))], "lr": 0.2})
    rate.admit()
    optimizer.step()
    rate.after_step(2)
    assert 0 < read_rates(optimizer)["lr/2"] < 0.2


def test_without_a_schedule_the_rate_stays() -> None:
    optimizer = sgd()
    assert type(build_rate(None, optimizer, step=0, total_steps=None)) is FixedRate
    assert rates_of(None, optimizer, for_="1ep") == [1.0, 1.0]


def tensor_groups(*rates: float) -> torch.optim.Optimizer:
    """As on a CUDA device: each group has its rate in a tensor."""
    groups = [
        {"params": [nn.Parameter(torch.zeros(1))], "lr": torch.tensor(rate)} for rate in rates
    ]
    return torch.optim.SGD(groups)


class Reads:
    """Counts tensors that the host looks at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        for name in ("item", "__float__", "tolist"):
            original = getattr(torch.Tensor, name)
            monkeypatch.setattr(torch.Tensor, name, self._counting(original))

    def _counting(self, original: Any) -> Any:
        def read(tensor: torch.Tensor) -> object:
            self.count += 1
            return original(tensor)

        return read


def test_the_owner_knows_rates_as_floats_and_writes_tensors_only_when_they_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Stairs(Schedule):
        def factor(self, step: int, total_steps: int | None) -> float:
            return 0.5 ** (step // 2)

    optimizer = tensor_groups(0.1, 1e-3)
    tensors = [group["lr"] for group in optimizer.param_groups]
    rate = build_rate(Stairs(), optimizer, step=0, total_steps=None)
    versions = []
    reads = Reads(monkeypatch)
    for step in range(1, 5):
        rate.after_step(step)
        versions.append(tensors[0]._version)
    assert read_rates(optimizer, rate.values) == {"lr/0": 0.025, "lr/1": 0.00025}
    assert reads.count == 0
    assert versions == [0, 1, 1, 2]
    assert [group["lr"] for group in optimizer.param_groups] == tensors
    assert torch.equal(torch.stack(tensors), torch.tensor([0.025, 0.00025]))


@pytest.mark.parametrize(
    "build",
    [
        lambda one: lr_scheduler.ExponentialLR(one, 0.9),
        lambda one: lr_scheduler.CosineAnnealingLR(one, 7),
        lambda one: lr_scheduler.LinearLR(one, 0.5, total_iters=4),
        lambda one: lr_scheduler.OneCycleLR(one, [0.3, 0.01], total_steps=10, cycle_momentum=False),
        lambda one: lr_scheduler.SequentialLR(
            one,
            [lr_scheduler.ConstantLR(one, 0.5), lr_scheduler.CosineAnnealingLR(one, 5)],
            milestones=[3],
        ),
    ],
)
def test_schedulers_of_torch_reckon_with_floats_where_rates_are_tensors(
    build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rates(optimizer: torch.optim.Optimizer) -> list[list[float]]:
        rate = build_rate(TorchSchedule(build(optimizer)), optimizer, step=0, total_steps=None)
        found = []
        reads = Reads(monkeypatch)
        for step in range(1, 8):
            optimizer.step()
            rate.after_step(step)
            found.append(list(rate.values))
        assert reads.count == 0
        return found

    optimizer, floats = tensor_groups(0.1, 1e-3), two_groups()
    floats.param_groups[0]["lr"], floats.param_groups[1]["lr"] = 0.1, 1e-3
    tensors = [group["lr"] for group in optimizer.param_groups]
    expected = rates(floats)
    found = rates(optimizer)
    assert torch.allclose(torch.tensor(found), torch.tensor(expected), rtol=1e-6)
    assert all(
        group["lr"] is tensor for group, tensor in zip(optimizer.param_groups, tensors, strict=True)
    )
    assert torch.equal(torch.stack(tensors), torch.tensor(found[-1]))


def test_a_rate_that_somebody_else_gave_is_taken_over_and_the_tensor_put_back() -> None:
    optimizer = tensor_groups(0.1)
    tensor = optimizer.param_groups[0]["lr"]
    rate = build_rate(None, optimizer, step=0, total_steps=None)
    assert rate.values == [0.1]
    optimizer.param_groups[0]["lr"] = 0.3
    rate.adopt()
    assert rate.values == [0.3]
    assert optimizer.param_groups[0]["lr"] is tensor
    assert tensor == torch.tensor(0.3)
    tensor.fill_(0.7)
    rate.adopt()
    assert rate.values == [0.7]
    optimizer.param_groups[0]["lr"] = torch.tensor(0.2)
    rate.adopt()
    assert rate.values == [0.2]
    assert optimizer.param_groups[0]["lr"] is tensor
    assert tensor == torch.tensor(0.2)


def test_a_tensor_that_was_written_to_with_what_it_held_changes_no_rate() -> None:
    optimizer = tensor_groups(1.0)
    rate = FactorRate(Falling(), optimizer, step=1, total_steps=3)
    before = list(rate.values)
    tensor = optimizer.param_groups[0]["lr"]
    tensor.copy_(tensor.clone())
    rate.adopt()
    assert rate.values == before == [1 - 1 / 3]


def test_a_hook_that_sets_the_rate_is_heard_from_the_next_step_on() -> None:
    model = adder()
    optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.1))
    tensor = optimizer.param_groups[0]["lr"]
    used, shown = [], []
    optimizer.register_step_pre_hook(lambda one, *_: used.append(one.param_groups[0]["lr"].item()))
    run = make_run(Sums(16), model, parts={"optimizer": optimizer}, for_="4st")

    def slow_down(run: Run) -> None:
        shown.append(run.learning_rates["lr"])
        if run.step == 2:
            run.optimizer.param_groups[0]["lr"] = 0.01

    run.on("step_end", slow_down)
    fit(run)
    assert used == pytest.approx([0.1, 0.1, 0.01, 0.01])
    assert shown == [0.1, 0.1, 0.01, 0.01]
    assert optimizer.param_groups[0]["lr"] is tensor


def test_which_rates_are_moved_by_steps_is_known_before() -> None:
    optimizer = sgd()
    each_step, each_epoch = (
        TorchSchedule(lr_scheduler.ExponentialLR(optimizer, 0.5), unit=unit)
        for unit in ("step", "epoch")
    )
    moved = [
        build_rate(schedule, optimizer, step=0, total_steps=None).is_moved_by_steps
        for schedule in (None, Falling(), each_step, each_epoch)
    ]
    assert moved == [False, True, True, False]
