"""Tests of sums on the host."""

from __future__ import annotations

import math

import pytest
import torch

from epochal.engine.measure.sums import MAX_KEPT_VALUES, HostSums


def read(sums: HostSums) -> dict[str, tuple[float, float]]:
    return sums.take().read()


def test_values_times_counts_and_counts_are_summed() -> None:
    sums = HostSums()
    sums.add({"loss": (torch.tensor(2.0), 3), "acc": (0.5, 4)})
    sums.add({"loss": (torch.tensor([1.0]), 1)})
    assert read(sums) == {"loss": (7.0, 4.0), "acc": (2.0, 4.0)}


def test_taking_sums_starts_from_zero() -> None:
    sums = HostSums()
    assert not sums.has_new
    sums.add({"loss": (1.0, 1)})
    assert sums.has_new
    taken = sums.take()
    sums.add({"loss": (5.0, 1)})
    assert taken.read() == {"loss": (1.0, 1.0)}
    assert read(sums) == {"loss": (5.0, 1.0)}
    assert not sums.has_new


def test_tensors_are_copied_when_they_are_added() -> None:
    sums = HostSums()
    buffer, weight = torch.tensor(1.0), torch.nn.Parameter(torch.tensor(2.0))
    sums.add({"buffer": (buffer, 1), "weight": (weight, 1), "mixed": (buffer, 1.0)})
    buffer.fill_(9.0)
    weight.data.fill_(9.0)
    assert read(sums) == {"buffer": (1.0, 1.0), "weight": (2.0, 1.0), "mixed": (1.0, 1.0)}


@pytest.mark.parametrize("count", [1, torch.tensor(1)])
def test_long_series_are_added_up_without_a_read(
    count: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums = HostSums()
    longest = 0
    with monkeypatch.context() as patched:
        for name in ("item", "tolist", "__float__", "__bool__"):
            patched.setattr(torch.Tensor, name, None)
        for step in range(3 * MAX_KEPT_VALUES):
            sums.add({"loss": (torch.tensor(step, dtype=torch.float32), count)})
            longest = max(longest, len(sums._series["loss"].values))
    steps = 3 * MAX_KEPT_VALUES
    assert longest < MAX_KEPT_VALUES
    assert read(sums) == {"loss": (steps * (steps - 1) / 2, steps)}


def test_long_series_of_mixed_dtypes_keep_their_precision() -> None:
    sums = HostSums()
    big = 2**40 + 1
    for _ in range(MAX_KEPT_VALUES):
        sums.add({"n": (torch.tensor(big), 1)})
        sums.add({"n": (torch.tensor([0.5], dtype=torch.float64), 1)})
    assert read(sums) == {"n": (MAX_KEPT_VALUES * (big + 0.5), 2 * MAX_KEPT_VALUES)}


@pytest.mark.parametrize("count", [0, -1, 0.0, torch.tensor(0), torch.tensor(-2)])
@pytest.mark.parametrize("value", [math.nan, torch.tensor(math.nan)])
def test_values_without_items_add_nothing(value: float, count: float) -> None:
    sums = HostSums()
    sums.add({"loss": (value, count)})
    assert read(sums) == {"loss": (0.0, 0.0)}


def test_captured_additions_are_added_only_by_a_replay() -> None:
    sums = HostSums()
    sums.add({"loss": (1.0, 1)})
    with sums.capture_additions() as notes:
        sums.add({"loss": (4.0, 2)})
    sums.replay_additions(notes)
    sums.replay_additions(notes)
    assert read(sums) == {"loss": (17.0, 5.0)}
