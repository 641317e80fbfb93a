"""Schedules: closed forms, warm-up in front, and equality with torch's own."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler

from epochal.components.optim.schedules import Constant, Cosine, Linear, Noam
from epochal.config import parse_duration
from epochal.engine.hook import Hook
from epochal.errors import ConfigError, TaskError
from epochal.testing import TinyTask, carry_out, short_options, tiny_run

if TYPE_CHECKING:
    from epochal.engine.run import Run
    from epochal.engine.schedule import Schedule


def curve(schedule: Schedule, total: int | None, steps: int) -> list[float]:
    return [schedule.factor(step, total) for step in range(steps)]


def torch_curve(make: type[LRScheduler], steps: int, **arguments: object) -> list[float]:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler = make(optimizer, **arguments)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


def test_constant_is_one_at_every_step() -> None:
    assert curve(Constant(), None, 4) == [1.0] * 4


def test_warmup_grows_in_a_straight_line_from_its_start() -> None:
    expected = [0.1, 0.325, 0.55, 0.775, 1.0, 1.0]
    assert curve(Constant(warmup=4, warmup_start=0.1), None, 6) == pytest.approx(expected)


def test_warmup_equals_torchs_linear_warmup() -> None:
    ours = curve(Constant(warmup=7, warmup_start=0.2), None, 10)
    theirs = torch_curve(LinearLR, 10, start_factor=0.2, total_iters=7)
    assert ours == pytest.approx(theirs)


def test_linear_falls_from_one_to_the_floor() -> None:
    assert curve(Linear(min_factor=0.5), 4, 6) == pytest.approx([1, 0.875, 0.75, 0.625, 0.5, 0.5])


def test_cosine_equals_its_closed_form() -> None:
    ours = curve(Cosine(min_factor=0.1), 100, 101)
    expected = [0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * step / 100)) for step in range(101)]
    assert ours == pytest.approx(expected)
    assert ours[0] == 1.0
    assert ours[100] == pytest.approx(0.1)


def test_cosine_equals_torchs_cosine() -> None:
    theirs = torch_curve(CosineAnnealingLR, 20, T_max=20, eta_min=0.05)
    assert curve(Cosine(min_factor=0.05), 20, 20) == pytest.approx(theirs)


@pytest.mark.parametrize("shape", [Linear, Cosine])
def test_descent_takes_the_steps_that_warmup_leaves(shape: type[Linear | Cosine]) -> None:
    ours = curve(shape(warmup=10, warmup_start=0.0), 30, 40)
    assert ours[:10] == pytest.approx([step / 10 for step in range(10)])
    assert ours[10:30] == pytest.approx(curve(shape(), 20, 20))
    assert ours[30:] == pytest.approx([0.0] * 10)


@pytest.mark.parametrize("shape", [Linear, Cosine])
def test_descent_never_rises_and_stays_above_its_floor(shape: type[Linear | Cosine]) -> None:
    factors = curve(shape(min_factor=0.2), 17, 25)
    assert all(later <= earlier for earlier, later in pairwise(factors))
    assert min(factors) == pytest.approx(0.2)


def test_the_same_step_has_the_same_factor_in_any_order() -> None:
    schedule = Cosine(warmup=3)
    assert [schedule.factor(step, 10) for step in (9, 0, 5)] == [
        Cosine(warmup=3).factor(step, 10) for step in (9, 0, 5)
    ]


def test_over_ends_the_descent_before_the_run_does() -> None:
    assert curve(Linear(over=4), 100, 6) == pytest.approx([1, 0.75, 0.5, 0.25, 0, 0])


def test_over_makes_a_run_of_unknown_length_possible() -> None:
    assert Cosine(over=10).factor(5, None) == pytest.approx(0.5)


def test_descent_of_unknown_length_says_what_to_set() -> None:
    with pytest.raises(ConfigError, match=r"schedule\.over: must be given(.|\n)*over: 10000st"):
        Cosine().factor(0, None)


def test_warmup_longer_than_the_run_only_warms_up() -> None:
    assert curve(Cosine(warmup=8, warmup_start=0.0), 4, 4) == pytest.approx(
        [0, 1 / 8, 2 / 8, 3 / 8]
    )


@pytest.mark.parametrize("warmup", ["20st", parse_duration("20st"), 20])
def test_warmup_is_a_number_or_a_duration_in_steps(warmup: object) -> None:
    schedule = Constant(warmup=warmup, warmup_start=0.0)
    assert schedule.factor(10, None) == pytest.approx(0.5)


def test_noam_peaks_at_the_end_of_its_warmup() -> None:
    factors = curve(Noam(model_size=512, warmup=10, scale=2.0), None, 40)
    assert factors.index(max(factors)) == 9
    assert factors[9] == pytest.approx(2.0 * 512**-0.5 * 10**-0.5)
    assert factors[0] == pytest.approx(2.0 * 512**-0.5 * 10**-1.5)
    assert factors[39] == pytest.approx(2.0 * 512**-0.5 * 40**-0.5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Constant(warmup=-1), r"schedule\.warmup: must not be negative, got -1"),
        (lambda: Constant(warmup="2h"), r"schedule\.warmup: must be in steps or epochs, got '2h'"),
        (lambda: Constant(warmup="soon"), r"schedule\.warmup: .*'soon'"),
        (lambda: Constant(warmup_start=-0.1), r"warmup_start: must be between 0 and 1, got -0.1"),
        (lambda: Cosine(min_factor=1.5), r"min_factor: must be between 0 and 1, got 1.5"),
        (lambda: Linear(min_factor=math.nan), r"min_factor: must be between 0 and 1, got nan"),
        (
            lambda: Linear(over="1e6sa"),
            r"schedule\.over: must be in steps or epochs, got '1000000sa'",
        ),
        (lambda: Noam(model_size=0), r"model_size: must be at least 1, got 0"),
    ],
)
def test_impossible_arguments_are_named(make: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


class Rates(Hook):
    """Keeps the learning rate that each step used."""

    def __init__(self) -> None:
        self.rates: list[float] = []

    def batch_start(self, run: Run, split: str) -> None:  # type: ignore[override]  # by name
        if split == "train":
            self.rates.append(run.learning_rates["lr"])


def rates_of(schedule: Schedule, **options: object) -> list[float]:
    class Scheduled(Hook):
        def assembled(self, run: Run) -> None:
            run.schedule = schedule

    rates = Rates()
    options = {"for_": "2ep", "sanity_batches": 0} | options
    carry_out(tiny_run(Scheduled(), rates, options=short_options(**options)))
    return rates.rates


def test_warmup_in_epochs_is_counted_by_the_run() -> None:
    by_epochs = rates_of(Linear(warmup="1ep", warmup_start=0.0))
    assert by_epochs == rates_of(Linear(warmup=6, warmup_start=0.0))
    assert by_epochs == pytest.approx(
        [0.1 * factor / 6 for factor in (0, 1, 2, 3, 4, 5, 6, 5, 4, 3, 2, 1)]
    )


def test_descent_over_epochs_ends_before_the_run_does() -> None:
    assert rates_of(Linear(over="1ep"))[6:] == [0.0] * 6


def test_epochs_of_unknown_length_must_be_written_in_steps() -> None:
    class Stream(TinyTask):
        def __init__(self) -> None:
            super().__init__()
            self.train_loader = map(dict, self.train_loader)  # type: ignore[assignment]

    class Warm(Hook):
        def assembled(self, run: Run) -> None:
            run.schedule = Constant(warmup="1ep")

    message = r"schedule\.warmup: cannot be '1ep'(.|\n)*warmup: 500st"
    with pytest.raises(ConfigError, match=message):
        carry_out(tiny_run(Warm(), task=Stream()))


def test_epochs_outside_of_a_run_mean_nothing() -> None:
    with pytest.raises(TaskError, match="no run is in progress"):
        Constant(warmup="1ep").factor(0, None)
