"""Tests of schedules that do not need the length of the run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from curves import curve, torch_curve
from torch.optim.lr_scheduler import ExponentialLR, MultiStepLR, StepLR

from epochal.components.optim.decays import Exponential, InverseSqrt, MultiStep, Noam, Step
from epochal.config import parse_duration
from epochal.errors import ConfigError

if TYPE_CHECKING:
    from epochal.engine.interfaces.schedule import Schedule


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
    with pytest.raises(ConfigError, match=r"schedule\.timescale: must be given(.|\n)*warmup: 1000"):
        InverseSqrt().factor(0, None)


def test_noam_equals_the_formula_of_the_paper() -> None:
    schedule = within_run(Noam(model_size=512, scale=2.0), warmup=10)
    expected = [2.0 * 512**-0.5 * min(n**-0.5, n * 10**-1.5) for n in range(1, 41)]
    assert curve(schedule, None, 40) == pytest.approx(expected)


def test_noam_peaks_at_the_end_of_its_warmup() -> None:
    factors = curve(within_run(Noam(model_size=512), warmup=10), None, 40)
    assert factors.index(max(factors)) == 9


def test_impossible_arguments_are_refused() -> None:
    for make, message in (
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


def test_epochs_outside_a_run_are_an_error() -> None:
    with pytest.raises(ConfigError, match=r"every: cannot be '1ep': nobody knows how many steps"):
        Step(every="1ep").factor(0, None)
