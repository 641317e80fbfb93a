"""Curves of learning-rate schedules."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from curves import curve, torch_curve
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    ExponentialLR,
    MultiStepLR,
    OneCycleLR,
    PolynomialLR,
    StepLR,
)

from epochal.components.schedules import (
    Constant,
    Cosine,
    Exponential,
    InverseSqrt,
    Linear,
    MultiStep,
    Noam,
    OneCycle,
    Polynomial,
    Step,
    Wsd,
)
from epochal.config import parse_duration
from epochal.engine import Warmup
from epochal.engine.interfaces.hook import Hook
from epochal.errors import ConfigError
from epochal.testing import TinyTask, execute_run, short_options, tiny_run

if TYPE_CHECKING:
    from epochal.engine.interfaces.schedule import Schedule
    from epochal.engine.run.engine_run import EngineRun

FALLING = [Linear, Cosine, Polynomial, Wsd]


def test_constant_is_one_at_every_step() -> None:
    assert curve(Constant(), None, 4) == [1.0] * 4


def test_linear_falls_from_one_to_its_minimum() -> None:
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


def test_cosine_restarts_with_equal_cycles() -> None:
    wave = curve(Cosine(), 5, 5)
    assert curve(Cosine(restarts=2), 15, 16) == pytest.approx([*wave, *wave, *wave, 0.0])


def test_growing_cycles_equal_torchs_warm_restarts() -> None:
    theirs = torch_curve(CosineAnnealingWarmRestarts, 21, T_0=3, T_mult=2, eta_min=0.1)
    assert curve(Cosine(restarts=2, growth=2, min_factor=0.1), 21, 21) == pytest.approx(theirs)


def test_the_peak_decays_with_each_restart() -> None:
    factors = curve(Cosine(restarts=2, peak_decay=0.5), 12, 12)
    assert factors[::4] == pytest.approx([1.0, 0.5, 0.25])
    assert factors[5] == pytest.approx(0.5 * (1 + math.cos(math.pi / 4)) / 2)


def test_cycles_restart_at_whole_steps() -> None:
    factors = curve(Cosine(restarts=2), 10, 10)
    assert [step for step, factor in enumerate(factors) if factor == 1.0] == [0, 3, 7]


def test_a_peak_is_never_below_the_minimum() -> None:
    assert min(curve(Cosine(restarts=3, peak_decay=0.1, min_factor=0.2), 16, 20)) == 0.2


def test_polynomial_equals_its_closed_form_and_torchs() -> None:
    for power in (0.5, 1.0, 2.0, 3.5):
        ours = curve(Polynomial(power=power), 9, 10)
        assert ours == pytest.approx([(1 - step / 9) ** power for step in range(10)])
        assert ours == pytest.approx(torch_curve(PolynomialLR, 10, total_iters=9, power=power))


def test_polynomial_ends_at_its_minimum() -> None:
    assert curve(Polynomial(power=2, min_factor=0.5), 2, 4) == pytest.approx([1, 0.625, 0.5, 0.5])


def test_one_cycle_equals_torchs() -> None:
    for shape, theirs in (("cosine", "cos"), ("linear", "linear")):
        for rise in (0.1, 0.3, 0.5):
            expected = torch_curve(
                OneCycleLR, 40, max_lr=1.0, total_steps=41, pct_start=rise, anneal_strategy=theirs
            )
            assert curve(OneCycle(shape=shape, rise=rise), 41, 40) == pytest.approx(expected)


def test_one_cycle_rises_to_one_and_falls_to_its_end() -> None:
    factors = curve(OneCycle(rise=0.5, start_factor=0.2, end_factor=0.1, shape="linear"), 10, 12)
    assert factors[0] == pytest.approx(0.2)
    assert factors[4] == pytest.approx(1.0)
    assert factors[9:] == pytest.approx([0.1] * 3)


def test_one_cycle_may_only_fall_or_only_rise() -> None:
    for rise in (0.0, 1.0):
        factors = curve(OneCycle(rise=rise), 10, 10)
        assert factors == sorted(factors, reverse=rise == 0)


def test_wsd_is_constant_and_then_falls() -> None:
    factors = curve(Wsd(decay=0.4), 10, 12)
    assert factors == pytest.approx([1] * 7 + [0.75, 0.5, 0.25, 0, 0])


def test_wsd_falls_over_a_length() -> None:
    expected = [1] * 9 + [0.75, 0.5, 0.5]
    for decay in ("2st", parse_duration("2st")):
        assert curve(Wsd(decay=decay, min_factor=0.5), 10, 12) == pytest.approx(expected)


def test_wsd_falls_in_the_given_shape() -> None:
    for shape, form in (
        ("linear", lambda p: 1 - p),
        ("cosine", lambda p: (1 + math.cos(math.pi * p)) / 2),
        ("sqrt", lambda p: 1 - math.sqrt(p)),
        ("square", lambda p: (1 - p) ** 2),
    ):
        factors = curve(Wsd(decay=0.5, shape=shape, min_factor=0.1), 20, 21)
        expected = [0.1 + 0.9 * form(step / 10) for step in range(11)]
        assert factors[10:] == pytest.approx(expected), shape
        assert factors[:10] == [1.0] * 10, shape


def test_decays_never_rise_and_stay_above_their_minimum() -> None:
    for shape in FALLING:
        factors = curve(shape(min_factor=0.2), 17, 25)
        assert all(later <= earlier for earlier, later in pairwise(factors)), shape
        assert min(factors) == pytest.approx(0.2), shape


def test_the_same_step_has_the_same_factor_in_any_order() -> None:
    schedule = Cosine(restarts=1)
    assert [schedule.factor(step, 10) for step in (9, 0, 5)] == [
        Cosine(restarts=1).factor(step, 10) for step in (9, 0, 5)
    ]


def test_over_ends_the_decay_before_the_run() -> None:
    assert curve(Linear(over=4), 100, 6) == pytest.approx([1, 0.75, 0.5, 0.25, 0, 0])


def test_over_makes_a_run_of_unknown_length_possible() -> None:
    for shape in (*FALLING, OneCycle):
        assert shape(over=10).factor(5, None) == shape().factor(5, 10)


def test_a_decay_of_unknown_length_says_what_to_set() -> None:
    for shape in (*FALLING, OneCycle):
        with pytest.raises(ConfigError, match=r"schedule\.over: required(.|\n)*over: 10000st"):
            shape().factor(0, None)


def test_impossible_arguments_are_refused() -> None:
    for make, message in (
        (lambda: Cosine(min_factor=1.5), r"min_factor: must be between 0 and 1, got 1.5"),
        (lambda: Cosine(restarts=-1), r"restarts: must be at least 0, got -1"),
        (lambda: Cosine(growth=0), r"growth: must be above 0, got 0"),
        (lambda: Cosine(peak_decay=2), r"peak_decay: must be above 0 and at most 1, got 2"),
        (lambda: Linear(min_factor=math.nan), r"min_factor: must be between 0 and 1, got nan"),
        (lambda: Linear(over=0), r"schedule\.over: must be at least 1, got 0"),
        (
            lambda: Linear(over="1e6sa"),
            r"schedule\.over: must be in steps or epochs, got '1000000sa'",
        ),
        (lambda: Polynomial(power=0), r"power: must be above 0, got 0"),
        (lambda: OneCycle(rise=1.5), r"rise: must be between 0 and 1, got 1.5"),
        (lambda: OneCycle(start_factor=-1), r"start_factor: must be between 0 and 1, got -1"),
        (lambda: Wsd(decay=3), r"decay: must be between 0 and 1, got 3"),
        (lambda: Wsd(decay="2h"), r"decay: must be in steps or epochs, got '2h'"),
        (lambda: Step(every=0), r"schedule\.every: must be at least 1, got 0"),
        (lambda: Step(every="soon"), r"schedule\.every: .*'soon'"),
        (lambda: Step(every=2, gamma=-0.1), r"gamma: must be at least 0, got -0.1"),
        (lambda: MultiStep(milestones=[5, 5]), r"milestones: must ascend, but 5st follows 5st"),
        (
            lambda: MultiStep(milestones=["30ep", "10ep"]),
            r"milestones: must ascend, but 10ep follows 30ep",
        ),
        (lambda: MultiStep(milestones=[0]), r"milestones: must be at least 1, got 0"),
        (lambda: Exponential(gamma=0), r"gamma: must be above 0, got 0"),
        (lambda: InverseSqrt(timescale=0), r"timescale: must be at least 1, got 0"),
        (lambda: Noam(model_size=0), r"model_size: must be at least 1, got 0"),
    ):
        with pytest.raises(ConfigError, match=message):
            make()


class Rates(Hook):
    """Records the learning rate of each step."""

    def __init__(self) -> None:
        self.rates: list[float] = []

    def batch_start(self, run: EngineRun, split: str) -> None:  # type: ignore[override]  # by name
        if split == "train":
            self.rates.append(run.learning_rates["lr"])


class SetSchedule(Hook):
    def __init__(self, schedule: object) -> None:
        self.schedule = schedule

    def assembled(self, run: EngineRun) -> None:
        run.schedule = self.schedule


def rates_of(schedule: object) -> list[float]:
    rates = Rates()
    options = short_options(for_="2ep", sanity_batches=0)
    execute_run(tiny_run(SetSchedule(schedule), rates, options=options))
    return rates.rates


def test_a_warmup_in_epochs_uses_the_steps_of_the_run() -> None:
    by_epochs = rates_of(Warmup(Linear(), "1ep", start=0.0))
    assert by_epochs == rates_of(Warmup(Linear(), 6, start=0.0))
    assert by_epochs == pytest.approx(
        [0.1 * factor / 6 for factor in (0, 1, 2, 3, 4, 5, 6, 5, 4, 3, 2, 1)]
    )


def test_a_decay_over_epochs_may_end_before_the_run() -> None:
    assert rates_of(Linear(over="1ep"))[6:] == [0.0] * 6


def test_a_decay_in_epochs_uses_the_steps_of_the_run() -> None:
    assert rates_of(Wsd(decay="1ep")) == rates_of(Wsd(decay="6st"))


class Stream(TinyTask):
    """Data of unknown length."""

    def __init__(self) -> None:
        super().__init__()
        self.train_loader = map(dict, self.train_loader)  # type: ignore[assignment]


def test_schedules_of_unknown_length_fail_before_the_first_step() -> None:
    for schedule, message in (
        (Warmup(Constant(), "1ep"), r"schedule\.warmup: cannot be '1ep'(.|\n)*warmup: 500st"),
        (Linear(over="1ep"), r"schedule\.over: cannot be '1ep'(.|\n)*over: 500st"),
        (Cosine(), r"schedule\.over: required"),
        (OneCycle(), r"schedule\.over: required"),
    ):
        rates = Rates()
        with pytest.raises(ConfigError, match=message):
            execute_run(tiny_run(SetSchedule(schedule), rates, task=Stream()))
        assert rates.rates == []


def within_run(schedule: Schedule, *, per_epoch: int | None = None, warmup: int = 0) -> Schedule:
    """The schedule with the lengths that a run sets."""
    schedule.steps_per_epoch, schedule.warmup_steps = per_epoch, warmup
    return schedule


def test_step_equals_its_closed_form_and_torchs() -> None:
    ours = curve(Step(every=3, gamma=0.5), None, 8)
    assert ours == [1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25]
    assert ours == pytest.approx(torch_curve(StepLR, 8, step_size=3, gamma=0.5))


def test_step_may_count_epochs() -> None:
    schedule = within_run(Step(every="2ep"), per_epoch=3)
    assert curve(schedule, None, 13) == pytest.approx([1.0] * 6 + [0.1] * 6 + [0.01])


def test_multi_step_equals_its_closed_form_and_torchs() -> None:
    ours = curve(MultiStep(milestones=[2, 5], gamma=0.1), None, 7)
    assert ours == pytest.approx([1, 1, 0.1, 0.1, 0.1, 0.01, 0.01])
    assert ours == pytest.approx(torch_curve(MultiStepLR, 7, milestones=[2, 5]))


def test_milestones_may_be_steps_and_epochs() -> None:
    schedule = within_run(MultiStep(milestones=["1st", parse_duration("1ep")]), per_epoch=3)
    assert curve(schedule, None, 5) == pytest.approx([1, 0.1, 0.1, 0.01, 0.01])


def test_exponential_equals_its_closed_form_and_torchs() -> None:
    ours = curve(Exponential(gamma=0.9), None, 10)
    assert ours == pytest.approx([0.9**step for step in range(10)])
    assert ours == pytest.approx(torch_curve(ExponentialLR, 10, gamma=0.9))


def test_exponential_falls_at_each_step_of_its_period() -> None:
    schedule = within_run(Exponential(gamma=0.5, every="1ep"), per_epoch=4)
    assert curve(schedule, None, 9) == pytest.approx([0.5 ** (step / 4) for step in range(9)])


def test_inverse_sqrt_equals_its_closed_form() -> None:
    for timescale in (50, "50st"):
        ours = curve(InverseSqrt(timescale=timescale), None, 200)
        assert ours == pytest.approx([math.sqrt(50 / (50 + step)) for step in range(200)]), (
            timescale
        )
        assert ours[150] == pytest.approx(0.5), timescale


def test_inverse_sqrt_follows_the_length_of_the_warmup() -> None:
    schedule = within_run(InverseSqrt(), warmup=100)
    # As the rate of the run's step n: sqrt(warmup / n).
    expected = [math.sqrt(100 / (100 + step)) for step in range(50)]
    assert curve(schedule, None, 50) == pytest.approx(expected)


def test_inverse_sqrt_without_any_scale_says_what_to_set() -> None:
    with pytest.raises(ConfigError, match=r"schedule\.timescale: required(.|\n)*warmup: 1000"):
        InverseSqrt().factor(0, None)


def test_noam_equals_the_formula_of_the_paper() -> None:
    schedule = within_run(Noam(model_size=512, scale=2.0), warmup=10)
    expected = [2.0 * 512**-0.5 * min(n**-0.5, n * 10**-1.5) for n in range(1, 41)]
    assert curve(schedule, None, 40) == pytest.approx(expected)


def test_noam_peaks_at_the_end_of_its_warmup() -> None:
    factors = curve(within_run(Noam(model_size=512), warmup=10), None, 40)
    assert factors.index(max(factors)) == 9


def test_epochs_outside_a_run_are_an_error() -> None:
    with pytest.raises(ConfigError, match="every: cannot be '1ep': the number of steps per epoch"):
        Step(every="1ep").factor(0, None)
