"""Tests of what the code of a step reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from engine.parts import Sums, make_run
from epochal.engine.capture.fingerprint import (
    StepDependencies,
    recording_attribute_reads,
    recording_position_reads,
    recording_store_reads,
)


class Weighted(Sums):
    def __init__(self) -> None:
        super().__init__()
        self.weight = 0.5
        self.names = ["a", "b"]


def test_attributes_that_are_read_in_a_block_are_noted() -> None:
    task = Weighted()
    kind = type(task)
    with recording_attribute_reads(task) as names:
        assert task.weight == 0.5
        assert isinstance(task, Weighted)
    assert names is not None
    assert "weight" in names
    assert "names" not in names
    assert type(task) is kind


def test_an_object_that_cannot_be_watched_counts_as_a_whole() -> None:
    with recording_attribute_reads(object()) as names:
        pass
    assert names is None


def test_lines_that_read_the_position_of_the_run_are_noted() -> None:
    run = make_run()
    kind = type(run)
    with recording_position_reads(run) as reads:
        assert run.step == 0
        assert run.samples == 0
        run.batch_index = 3
    assert [read.split(" is read in ")[0] for read in reads] == ["run.step", "run.samples"]
    assert "test_reads.py:" in reads[0]
    assert type(run) is kind
    assert run.batch_index == 3


def test_what_epochal_itself_reads_is_not_noted() -> None:
    run = make_run()
    with recording_position_reads(run) as reads:
        assert run.limits is not None
        run.log({"x": 1.0})
    assert reads == []


@pytest.mark.parametrize("name", ["learning_rates", "feed", "clock", "monitor", "updater"])
def test_parts_of_the_run_that_move_are_noted_too(name: str) -> None:
    run = make_run()
    with recording_position_reads(run) as reads:
        getattr(run, name)
    assert [read.split(" is read in ")[0] for read in reads] == [f"run.{name}"]


def test_names_that_are_looked_up_in_the_store_are_noted() -> None:
    store = make_run().store
    store.set("alpha", 1)
    kind = type(store)
    with recording_store_reads(store) as names:
        assert store.get("alpha") == 1
        assert store.try_get("beta", 2) == 2
        assert "gamma" not in store
    assert names == {"alpha", "beta", "gamma"}
    assert type(store) is kind


@dataclass(frozen=True)
class Fixed:
    weight: float = 0.5


def test_a_frozen_dataclass_can_be_watched() -> None:
    owner = Fixed()
    with recording_attribute_reads(owner) as names:
        assert owner.weight == 0.5
    assert names == {"weight"}
    assert type(owner) is Fixed


T = TypeVar("T")


class Listed(Generic[T]):
    kinds: ClassVar[list[type]] = []

    def __init_subclass__(cls) -> None:
        Listed.kinds.append(cls)


class Strict(type):
    def __new__(cls, name: str, bases: Any, space: Any) -> Any:
        if "__getattribute__" in space:
            raise ValueError("no")
        return super().__new__(cls, name, bases, space)


class Guarded(metaclass=Strict):
    pass


def test_classes_that_would_notice_or_refuse_are_not_watched() -> None:
    for owner in (Listed[int](), Guarded()):
        with recording_attribute_reads(owner) as names:
            pass
        assert names is None
    assert Listed.kinds == []


def test_reads_of_several_shapes_count_together() -> None:
    both = StepDependencies({"a"}, {"x"}).joined(StepDependencies({"b"}, {"y"}))
    assert both == StepDependencies({"a", "b"}, {"x", "y"})
    assert StepDependencies({"a"}).joined(StepDependencies(None)).task is None
    assert StepDependencies(None).joined(StepDependencies({"a"})).task is None
