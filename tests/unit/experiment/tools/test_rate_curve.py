"""Tests of what losses at growing learning rates suggest."""

from __future__ import annotations

import math
import random

import pytest

from epochal.experiment.tools.find_lr import (
    DIVERGENCE_FACTOR,
    DivergenceStop,
    smooth_losses,
    suggest_lr,
)


def valley(count: int = 100, *, noise: float = 0.0) -> list[float]:
    """A loss that is flat, falls around place 60, is least at 75 and explodes."""
    source = random.Random(0)
    losses = []
    for place in range(count):
        x = place / count
        loss = 1 + 1 / (1 + math.exp((x - 0.6) * 40)) + math.exp((x - 0.85) * 25)
        losses.append(loss + source.gauss(0, noise))
    return losses


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.1])
def test_the_steepest_place_and_the_least_loss_are_found_through_noise(noise: float) -> None:
    advice = suggest_lr(valley(noise=noise))
    assert advice.steepest == pytest.approx(60, abs=4)
    assert advice.least == pytest.approx(70, abs=6)


def test_more_steps_find_the_same_place() -> None:
    assert suggest_lr(valley(400)).steepest == pytest.approx(240, abs=8)


@pytest.mark.parametrize(
    "losses",
    [
        [2.0] * 50,
        [1 + place / 50 for place in range(50)],
        [random.Random(place).gauss(1, 0.5) for place in range(50)],
        [],
        [1.0],
    ],
)
def test_a_loss_that_does_not_fall_suggests_nothing(losses: list[float]) -> None:
    assert suggest_lr(losses).steepest is None


def test_smoothing_keeps_straight_lines_in_the_middle_and_constants_everywhere() -> None:
    line = [float(place) for place in range(40)]
    assert smooth_losses(line)[15:25] == pytest.approx(line[15:25])
    assert smooth_losses([3.0] * 40) == pytest.approx([3.0] * 40)


def test_a_test_ends_when_the_loss_is_a_multiple_of_the_least() -> None:
    ending = DivergenceStop()
    heard = [ending.check_loss(loss) for loss in [1.0] * 10 + [100.0]]
    assert heard[:10] == [""] * 10
    assert heard[10] == f"the loss is {DIVERGENCE_FACTOR:g} times the least"


def test_one_bad_batch_at_the_start_ends_nothing() -> None:
    ending = DivergenceStop()
    assert not any(ending.check_loss(loss) for loss in (0.1, 5.0, 0.1, 0.1, 0.1))


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_ends_a_test_at_once(loss: float) -> None:
    assert DivergenceStop().check_loss(loss) == "the loss is not finite any more"


def test_losses_below_zero_end_a_test_only_when_they_rise() -> None:
    ending = DivergenceStop()
    assert not any(ending.check_loss(-float(place)) for place in range(1, 50))
    assert any(ending.check_loss(1000.0) for _ in range(3))
