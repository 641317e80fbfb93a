"""Tests of telling those who listen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from engine.parts import make_run
from epochal.engine import Hook
from epochal.engine.events.events import Events
from epochal.hooks.recording import Recording

if TYPE_CHECKING:
    from epochal.engine.run.engine_run import EngineRun


class Noting(Hook):
    def __init__(self, name: str, notes: list[str], *, priority: int = 500) -> None:
        self.name = name
        self.notes = notes
        self.priority = priority

    def run_end(self, run: Any) -> None:
        self.notes.append(self.name)

    def teardown(self, run: Any) -> None:
        self.notes.append(f"{self.name} down")


@pytest.fixture
def run() -> EngineRun:
    return make_run()


def test_low_priorities_come_first_and_equal_ones_in_order(run: EngineRun) -> None:
    notes: list[str] = []
    hooks = [Noting("b", notes), Noting("c", notes), Noting("a", notes, priority=1)]
    Events(hooks).fire("run_end", run)
    assert notes == ["a", "b", "c"]


def test_teardown_comes_in_reverse(run: EngineRun) -> None:
    notes: list[str] = []
    Events([Noting("b", notes), Noting("a", notes, priority=1)]).fire("teardown", run)
    assert notes == ["b down", "a down"]


def test_only_listeners_of_the_split_are_called(run: EngineRun) -> None:
    heard: list[str] = []
    events = Events()
    events.add_function(
        "on_validation_epoch_end", lambda split: heard.append(split), priority=0, every=None
    )
    events.fire("epoch_end", run, "train", {})
    events.fire("epoch_end", run, "val", {})
    assert heard == ["val"]
    assert events.listeners("epoch_end", "train") == ()


def test_a_period_in_epochs_applies_to_training_only(run: EngineRun) -> None:
    heard: list[tuple[str, int]] = []
    events = Events()
    events.add_function(
        "epoch_end", lambda run, split: heard.append((split, run.epoch)), priority=0, every="2ep"
    )
    for run.epoch in range(4):
        events.fire("epoch_end", run, "train", {})
    events.fire("epoch_end", run, "val", {})
    assert heard == [("train", 1), ("train", 3), ("val", 3)]


def test_an_exception_names_its_listener(run: EngineRun) -> None:
    class Broken(Hook):
        def run_end(self, run: Any) -> None:
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken") as caught:
        Events([Broken()]).fire("run_end", run)
    assert caught.value.__notes__ == ["raised in Broken.run_end, called at run_end"]


def test_all_listeners_can_be_called_even_if_some_raise(run: EngineRun) -> None:
    class Broken(Hook):
        priority = 1

        def run_end(self, run: Any) -> None:
            raise ValueError("broken")

    notes: list[str] = []
    errors = Events([Broken(), Noting("a", notes)]).fire_and_collect_errors("run_end", run)
    assert notes == ["a"]
    assert [str(error) for error in errors] == ["broken"]


def test_hooks_can_be_added_and_cleared(run: EngineRun) -> None:
    notes: list[str] = []
    events = Events()
    events.add_hook(Noting("late", notes))
    events.fire("run_end", run)
    events.clear()
    events.fire("run_end", run)
    assert notes == ["late"]


def test_another_task_replaces_the_listeners_of_the_first(run: EngineRun) -> None:
    class First:
        def run_end(self) -> None:
            raise AssertionError

    class Second:
        def run_end(self, run: Any) -> None:
            run.store.set("heard", True)

    events = Events(task=First())
    events.set_task(Second())
    events.fire("run_end", run)
    assert run.store.get("heard")


def test_calls_of_user_code_are_recorded(run: EngineRun) -> None:
    run.events.add_hook(Noting("a", []))
    assert not run.events.has_run_user_code
    run.fire("run_end")
    assert run.events.has_run_user_code


def test_calls_of_builtin_hooks_are_not_recorded_as_user_code() -> None:
    run = make_run(hooks=(Recording(),))
    run.events.has_run_user_code = False
    run.fire("run_start")
    assert not run.events.has_run_user_code
