"""Tests of the owner of the learning rate."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from engine.parts import Sums, adder, fit, make_run
from epochal.components.schedules import Constant, Linear, MultiStep, Noam
from epochal.engine import Monitor, Run, Schedule, TorchSchedule, Warmup
from epochal.engine.interfaces.schedule import OptimizerSchedules
from epochal.engine.optim.build_rate import FactorRate, MultiOptimizerRate, build_rate
from epochal.engine.optim.rate import FixedRate, Rate, read_rates
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


def test_step_n_uses_the_factor_of_n_finished_steps() -> None:
    used = rates_of(Falling(), sgd())
    assert used == [1 - step / 8 for step in range(8)]


def test_a_resumed_schedule_has_the_same_rate_without_an_extra_step_defect_3() -> None:
    before, after = sgd(), sgd()
    rate = FactorRate(Falling(), before, step=0, total_steps=10)
    for step in range(1, 4):
        rate.after_step(step)
    after.load_state_dict(before.state_dict())
    FactorRate(Falling(), after, step=3, total_steps=10)
    assert read_rates(after) == read_rates(before) == {"lr": 0.7}


def test_torch_schedulers_advance_once_per_step_epoch_or_evaluation() -> None:
    table: list[tuple[str, dict[str, Any], list[float]]] = [
        ("step", {"for_": "2ep"}, [1.0, 0.5, 0.25, 0.125]),
        ("epoch", {"for_": "3ep"}, [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]),
        (
            "eval",
            {"for_": "2ep", "eval_every": "3st", "eval_at_start": True},
            [1.0, 1.0, 1.0, 0.5],
        ),
    ]
    for unit, options, expected in table:
        optimizer = sgd()
        schedule = TorchSchedule(lr_scheduler.ExponentialLR(optimizer, 0.5), unit=unit)  # type: ignore[arg-type]
        assert rates_of(schedule, optimizer, **options) == expected, unit


def test_a_group_that_is_added_later_is_scheduled_from_its_first_update_on() -> None:
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


def test_schedulers_of_torch_continue_with_a_group_that_is_added_later() -> None:
    for build in (
        lambda optimizer: lr_scheduler.ExponentialLR(optimizer, 0.5),
        lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 8),
        lambda optimizer: lr_scheduler.PolynomialLR(optimizer, 8),
    ):
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


def test_a_fixed_rate_never_moves() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    rate = FixedRate(optimizer)
    rate.after_step(1)
    rate.after_epoch(1)
    rate.after_eval(1)
    rate.after_value(0.5, 1)
    assert rate.values == [0.1]
    assert not rate.is_moved_by_steps


def test_a_checkpoint_keeps_the_rates() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    rate = FixedRate(optimizer)
    state = rate.state_dict()
    optimizer.param_groups[0]["lr"] = 0.3
    rate.adopt()
    assert rate.values == [0.3]
    rate.load_state_dict(state)
    assert (state, rate.values) == ({"values": [0.1], "used": [[-1, []]], "own": {}}, [0.1])


def test_a_checkpoint_keeps_the_rates_of_the_latest_update() -> None:
    def falling() -> Rate:
        return build_rate(Falling(), two_groups(), step=0, total_steps=None)

    for make in (falling, joined):
        rate, again = make(), make()
        used = list(rate.values)
        rate.keep_used(1)
        rate.after_step(1)
        again.load_state_dict(rate.state_dict())
        assert again.get_used(1) == rate.get_used(1) == used != rate.values
        assert again.get_used(2) == rate.values


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


def test_tensors_of_rates_are_written_only_when_the_rate_changes_and_never_read(
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


TORCHS = [
    lambda one: lr_scheduler.ExponentialLR(one, 0.9),
    lambda one: lr_scheduler.CosineAnnealingLR(one, 7),
    lambda one: lr_scheduler.LambdaLR(one, lambda step: 1 / (1 + step)),
    lambda one: lr_scheduler.OneCycleLR(one, [0.3, 0.01], total_steps=20, cycle_momentum=False),
    lambda one: lr_scheduler.SequentialLR(
        one,
        [lr_scheduler.ConstantLR(one, 0.5), lr_scheduler.CosineAnnealingLR(one, 5)],
        milestones=[3],
    ),
    lambda one: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(one, 0.5), lr_scheduler.ExponentialLR(one, 0.8)]
    ),
]


@pytest.mark.parametrize("build", TORCHS)
def test_schedulers_of_torch_compute_with_floats_if_rates_are_tensors(
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


def test_a_rate_that_users_set_is_adopted_and_the_tensor_put_back() -> None:
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
    tensor.copy_(tensor.clone())  # the same value again
    rate.adopt()
    assert rate.values == [0.2]
    assert optimizer.param_groups[0]["lr"] is tensor
    assert tensor == torch.tensor(0.2)


def test_a_rate_that_a_hook_sets_is_used_from_the_next_step_on() -> None:
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


def test_a_rate_knows_whether_steps_move_it() -> None:
    optimizer = sgd()
    each_step, each_epoch = (
        TorchSchedule(lr_scheduler.ExponentialLR(optimizer, 0.5), unit=unit)
        for unit in ("step", "epoch")
    )
    moved = [
        build_rate(schedule, optimizer, step=0, total_steps=None).is_moved_by_steps
        for schedule in (None, Falling(), each_step, each_epoch)
    ]
    one, other = two()
    fixed = OptimizerSchedules({"one": (one, None), "other": (other, None)})
    moved.append(build_rate(fixed, one, step=0, total_steps=None).is_moved_by_steps)
    assert moved == [False, True, True, False, False]


def warm_rates(
    schedule: Any, optimizer: torch.optim.Optimizer, steps: int, **options: Any
) -> list[list[float]]:
    """The rates of each group at every step of a run without epochs."""
    rate = build_rate(schedule, optimizer, step=0, **{"total_steps": None, **options})
    found = []
    for step in range(1, steps + 1):
        found.append(list(rate.values))
        optimizer.step()
        rate.after_step(step)
    return found


def flat(rates: list[list[float]]) -> list[float]:
    return [one for groups in rates for one in groups]


def test_warmup_is_linear_and_keeps_the_ratios_of_groups() -> None:
    found = warm_rates(Warmup(Constant(), 4, start=0.1), two_groups(), 6)
    expected = [0.1, 0.325, 0.55, 0.775, 1.0, 1.0]
    assert [first for first, _ in found] == pytest.approx(expected)
    assert [second for _, second in found] == pytest.approx([0.1 * one for one in expected])


def test_a_warmup_is_its_formula_bit_for_bit_and_ends_at_the_rate_itself() -> None:
    for start in (0.0, 0.01, 0.3):
        found = flat(warm_rates(Warmup(Constant(), 17, start=start), sgd(), 20))
        assert found[:17] == [start + (1 - start) * step / 17 for step in range(17)]
        assert found[17:] == [1.0] * 3


def test_a_schedule_covers_the_steps_after_its_warmup() -> None:
    found = warm_rates(Warmup(Falling(), 10, start=0.0), sgd(), 30, total_steps=30)
    expected = [step / 10 for step in range(10)] + [1 - step / 20 for step in range(20)]
    assert flat(found) == pytest.approx(expected)


def test_milestones_count_from_the_start_of_the_run_with_a_warmup() -> None:
    found = warm_rates(Warmup(MultiStep(milestones=[2, 6], gamma=0.5), 4, start=0.0), sgd(), 8)
    assert flat(found) == pytest.approx([0, 0.125, 0.25, 0.375, 0.5, 0.5, 0.25, 0.25])


def test_noam_does_its_own_warmup() -> None:
    found = warm_rates(Warmup(Noam(model_size=4), 4), sgd(), 8)
    expected = [4**-0.5 * min(n**-0.5, n * 4**-1.5) for n in range(1, 9)]
    assert flat(found) == pytest.approx(expected)


@pytest.mark.parametrize("build", TORCHS)
def test_any_scheduler_of_torch_starts_when_its_warmup_ends_bit_for_bit(build: Any) -> None:
    warm, plain = two_groups(), two_groups()
    found = warm_rates(Warmup(build(warm), 3, start=0.25), warm, 10)
    expected = warm_rates(TorchSchedule(build(plain)), plain, 7)
    assert found[3:] == expected
    line = [[rate * factor for rate in expected[0]] for factor in (0.25, 0.5, 0.75)]
    assert flat(found[:3]) == pytest.approx(flat(line))


def test_a_plateau_ignores_values_during_its_warmup() -> None:
    optimizer = sgd()
    plateau = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
    rate = build_rate(
        Warmup(plateau, 4, start=0.0),
        optimizer,
        step=0,
        total_steps=None,
        monitor=Monitor("val/x"),
    )
    found = []
    for step in range(1, 9):
        rate.after_step(step)
        rate.after_value(1.0, step)
        found.append(rate.values[0])
    assert found == [0.25, 0.5, 0.75, 1.0, 1.0, 0.5, 0.25, 0.125]
    assert plateau.num_bad_epochs == 0
    assert plateau.last_epoch == 4


def test_schedulers_of_epochs_and_evaluations_ignore_those_of_the_warmup() -> None:
    for unit in ("epoch", "eval"):
        optimizer = sgd()
        scheduler = lr_scheduler.ExponentialLR(optimizer, 0.5)
        schedule = Warmup(TorchSchedule(scheduler, unit=unit), 2)
        rate = build_rate(schedule, optimizer, step=0, total_steps=None)
        found = []
        optimizer.step()
        for step in range(1, 5):
            rate.after_step(step)
            getattr(rate, f"after_{unit}")(step)
            found.append(rate.values[0])
        assert found == [pytest.approx(0.505), 1.0, 0.5, 0.25]


def test_a_schedule_can_move_by_epochs() -> None:
    schedule = Falling()
    schedule.unit = "epoch"
    assert rates_of(schedule, sgd()) == [1.0, 1.0, 0.75, 0.75, 0.5, 0.5, 0.25, 0.25]


def test_a_schedule_by_epochs_warms_up_by_steps() -> None:
    schedule = Falling()
    schedule.unit = "epoch"
    used = rates_of(Warmup(schedule, 3, start=0.0), sgd())
    assert used == pytest.approx([0, 1 / 3, 2 / 3, 1, 4 / 5, 4 / 5, 2 / 5, 2 / 5])


def test_a_schedule_by_evaluations_is_refused() -> None:
    schedule = Falling()
    schedule.unit = "eval"
    with pytest.raises(
        ConfigError, match=r"schedule.unit: unknown unit 'eval'\n  known: epoch, step"
    ):
        build_rate(schedule, sgd(), step=0, total_steps=None)


@pytest.mark.parametrize("warmup", [0, 2])
def test_a_schedule_of_a_stage_counts_from_the_first_step_of_the_stage(warmup: int) -> None:
    def found(offset: int) -> list[float]:
        optimizer = sgd()
        schedule = Warmup(Falling(), warmup, start=0.5)
        rate = build_rate(schedule, optimizer, step=offset, total_steps=5, offset=offset)
        rates = [rate.values[0]]
        for step in range(offset + 1, offset + 5):
            rate.after_step(step)
            rates.append(rate.values[0])
        return rates

    assert found(offset=7) == found(offset=0)
    assert found(offset=0)[warmup] == 1.0


def test_a_resumed_stage_has_the_same_rates() -> None:
    def rate_at(step: int) -> Any:
        schedule = Warmup(Falling(), 2, start=0.5)
        return build_rate(schedule, sgd(), step=step, total_steps=5, offset=7)

    going = rate_at(7)
    for step in range(8, 12):
        going.after_step(step)
        resumed = rate_at(step)
        assert resumed.values == going.values
        resumed.load_state_dict(going.state_dict())
        assert resumed.state_dict() == going.state_dict()


def test_a_warmup_longer_than_the_training_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    schedule = Warmup(Falling(), 8, start=0.0)
    found = warm_rates(schedule, sgd(), 4, total_steps=4)
    assert flat(found) == pytest.approx([0, 1 / 8, 2 / 8, 3 / 8])
    assert caplog.text == "", "a plan that is not run says it in its own way"
    for one in (schedule, OptimizerSchedules({"a": (sgd(), schedule), "b": (sgd(), None)})):
        caplog.clear()
        fit(make_run(parts={"schedule": one}, for_="4st", sanity_batches=0))
        text = "schedule.warmup: the warm-up takes 8 steps, and the training only 4"
        assert [line.getMessage() for line in caplog.records if line.levelname == "WARNING"] == [
            text
        ], one


def test_a_group_that_is_added_during_the_warmup_warms_up_too() -> None:
    for make in (lambda _: Falling(), lambda one: lr_scheduler.ExponentialLR(one, 0.5)):
        optimizer = sgd()
        warmup = Warmup(make(optimizer), 4, start=0.0)
        rate = build_rate(warmup, optimizer, step=0, total_steps=104)
        rate.after_step(1)
        optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))], "lr": 0.1})
        rate.admit()
        assert rate.values == pytest.approx([0.25, 0.025])
        for step in (2, 3, 4):
            optimizer.step()
            rate.after_step(step)
        assert rate.values == pytest.approx([1.0, 0.1])


def test_a_warmup_fills_tensors_in_place_and_reads_none(monkeypatch: pytest.MonkeyPatch) -> None:
    optimizer = tensor_groups(0.1, 1e-3)
    tensors = [group["lr"] for group in optimizer.param_groups]
    rate = build_rate(Warmup(Falling(), 4), optimizer, step=0, total_steps=8)
    reads = Reads(monkeypatch)
    for step in range(1, 8):
        rate.after_step(step)
    assert reads.count == 0
    assert all(
        group["lr"] is tensor for group, tensor in zip(optimizer.param_groups, tensors, strict=True)
    )
    assert torch.equal(torch.stack(tensors), torch.tensor(rate.values))


def test_every_process_warms_up_on_its_own_defect_2() -> None:
    """The rate is a function of the step, and not a listener that only one process has."""
    used = [rates_of(Warmup(Falling(), 4), sgd()) for _rank in range(2)]
    assert used[0] == used[1]
    assert used[0][0] < used[0][3] < used[0][4] == 1.0


def test_a_scheduler_advances_once_per_step_and_groups_keep_their_ratios_defect_13() -> None:
    model = adder()
    groups = [
        {"params": model[0].parameters(), "lr": 1.0},
        {"params": model[3].parameters(), "lr": 0.1},
    ]
    optimizer = torch.optim.SGD(groups)
    scheduler = lr_scheduler.ExponentialLR(optimizer, 0.5)
    used: list[list[float]] = []
    optimizer.register_step_pre_hook(
        lambda one, *_: used.append([group["lr"] for group in one.param_groups])
    )
    parts = {"optimizer": optimizer, "schedule": Warmup(scheduler, 2, start=0.5)}
    fit(make_run(Sums(16), model, parts=parts, for_="5st"))
    assert [first for first, _ in used] == [0.5, 0.75, 1.0, 0.5, 0.25]
    assert [second for _, second in used] == pytest.approx([0.05, 0.075, 0.1, 0.05, 0.025])
    assert scheduler.last_epoch == 3


def test_a_schedule_counts_the_step_of_the_last_microbatches_defect_15() -> None:
    """Microbatches that are left over at the end of an epoch are a step like any other."""
    optimizer = sgd()
    used: list[float] = []
    optimizer.register_step_pre_hook(lambda one, *_: used.append(one.param_groups[0]["lr"]))
    parts = {"optimizer": optimizer, "schedule": Falling()}
    run = make_run(Sums(12), optimizer.model, parts=parts, for_="2ep", optim={"accumulate": 2})
    fit(run)  # of three batches an epoch
    assert used == [1.0, 0.75, 0.5, 0.25]


def two() -> tuple[torch.optim.Optimizer, torch.optim.Optimizer]:
    a, b = nn.Linear(1, 1), nn.Linear(1, 1)
    groups = [{"params": [b.weight], "lr": 1}, {"params": [b.bias], "lr": 2}]
    return torch.optim.SGD(a.parameters(), lr=0.5), torch.optim.SGD(groups)


def joined(step: int = 0, optimizers: Any = None) -> MultiOptimizerRate:
    one, other = optimizers or two()
    schedules = OptimizerSchedules(
        {
            "one": (one, Linear()),
            "other": (other, TorchSchedule(lr_scheduler.ExponentialLR(other, 0.1), unit="epoch")),
        }
    )
    other.step()
    rate = build_rate(schedules, one, step=step, total_steps=10)
    assert isinstance(rate, MultiOptimizerRate)
    return rate


def test_each_of_several_optimizers_moves_its_own_rate() -> None:
    rate = joined()
    assert rate.is_moved_by_steps
    assert rate.values == [0.5, 1, 2]
    rate.after_step(5)
    assert rate.values == [0.25, 1, 2]
    rate.after_epoch(5)
    assert rate.values == pytest.approx([0.25, 0.1, 0.2])
    rate.after_eval(5)
    rate.after_value(1.0, 5)
    assert rate.values == pytest.approx([0.25, 0.1, 0.2])


def test_rates_of_several_optimizers_are_adopted() -> None:
    one, other = two()
    rate = joined(optimizers=(one, other))
    other.param_groups[0]["lr"] = 7.0
    rate.adopt()
    assert rate.values == [0.5, 7.0, 2]
    rate.admit()
    assert rate.values == [0.5, 7.0, 2]


def test_rates_of_several_optimizers_continue_from_a_checkpoint() -> None:
    rate = joined()
    rate.after_step(5)
    rate.after_epoch(5)
    state = rate.state_dict()
    one, other = two()
    again = joined(5, (one, other))
    for group, value in zip([*one.param_groups, *other.param_groups], rate.values, strict=True):
        group["lr"] = value  # the groups come back with the optimizer
    again.load_state_dict(state)
    assert again.values == rate.values
    again.after_epoch(10)
    rate.after_epoch(10)
    assert again.values == rate.values
