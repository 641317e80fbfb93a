"""Tests of giving memory back."""

from __future__ import annotations

import pytest
import torch

from engine.parts import fit, make_run
from epochal.engine import memory
from epochal.engine.execute import describe
from epochal.engine.runner import Train


class Emptier:
    """Counts how often memory is given back."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1


@pytest.fixture
def emptier(monkeypatch: pytest.MonkeyPatch) -> Emptier:
    emptier = Emptier()
    monkeypatch.setattr(memory, "find_emptier", lambda device: emptier)
    return emptier


@pytest.mark.parametrize(("every", "times"), [("2st", 5), ("1ep", 2), (0, 0)])
def test_memory_is_given_back_as_often_as_asked(
    emptier: Emptier, every: object, times: int
) -> None:
    fit(make_run(for_="2ep", engine={"empty_cache_every": every}))
    assert emptier.calls == times


def test_by_default_it_never_is(emptier: Emptier) -> None:
    fit(make_run(for_="2ep"))
    assert emptier.calls == 0


def test_the_plan_shows_it(emptier: Emptier) -> None:
    rows = describe(make_run(engine={"empty_cache_every": "100st"}), Train())
    assert ("empty the cache", "100st") in [(row.hook, row.cadence) for row in rows]


def test_a_cpu_keeps_no_memory_and_trains_on() -> None:
    assert memory.find_emptier(torch.device("cpu")) is None
    assert fit(make_run(for_="3st", engine={"empty_cache_every": "1st"})).ok


@pytest.mark.parametrize("kind", ["cuda", "mps", "xpu"])
def test_devices_that_keep_memory_can_give_it_back(kind: str) -> None:
    assert memory.find_emptier(torch.device(kind)) is getattr(torch, kind).empty_cache
