"""Tests of measuring how long a call takes."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

import pytest
import torch

from engine.parts import Hands
from epochal.engine.analysis.model_summary import Latency, measure_latency

if TYPE_CHECKING:
    from collections.abc import Callable

CPU = torch.device("cpu")


def measure(*durations: float, preparation: float = 0.0) -> tuple[Latency, int]:
    """The latency of calls that take these times in turns, and how many there were."""
    hands = Hands()
    turns = cycle(durations)
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1
        hands.seconds += next(turns)

    def prepare() -> Callable[[], None]:
        hands.seconds += preparation
        return call

    return measure_latency(prepare, CPU, now=hands), calls


def test_mean_and_deviation_are_those_of_the_calls() -> None:
    latency, calls = measure(0.001, 0.003)
    assert (latency.runs, calls) == (30, 33)
    assert latency.mean_seconds == pytest.approx(0.002)
    assert latency.std_seconds == pytest.approx(0.001 * (30 / 29) ** 0.5)


def test_preparation_does_not_count_and_slow_calls_are_repeated_less_often() -> None:
    assert measure(0.001, preparation=0.01)[0].mean_seconds == pytest.approx(0.001)
    assert measure(0.1)[0].runs in {10, 11}
    latency, calls = measure(60.0)
    assert (latency.runs, calls, latency.std_seconds) == (2, 3, 0)
