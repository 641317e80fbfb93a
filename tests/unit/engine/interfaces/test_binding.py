"""Tests of functions that take arguments by name."""

from __future__ import annotations

import pytest

from epochal.engine.interfaces.binding import bind_by_name, parameter_names
from epochal.errors import TaskError

NAMES = ("run", "split", "metrics")


def test_a_function_of_all_arguments_is_used_itself() -> None:
    def listen(run: object, split: object, metrics: object) -> None: ...

    assert bind_by_name(listen, NAMES, owner="listen") is listen


def test_any_of_the_arguments_may_be_taken_in_any_order() -> None:
    assert bind_by_name(lambda metrics, run: (metrics, run), NAMES, owner="f")(1, 2, 3) == (3, 1)
    assert bind_by_name(lambda: "none", NAMES, owner="f")(1, 2, 3) == "none"
    assert bind_by_name(lambda *, split: split, NAMES, owner="f")(1, 2, 3) == 2


def test_arguments_with_defaults_are_left_alone() -> None:
    assert bind_by_name(lambda run, other=5: (run, other), NAMES, owner="f")(1, 2, 3) == (1, 5)


def test_open_functions_get_everything() -> None:
    assert bind_by_name(lambda *values: values, NAMES, owner="f")(1, 2, 3) == (1, 2, 3)
    assert bind_by_name(print, NAMES, owner="f") is print


def test_methods_are_bound_without_self() -> None:
    class Listener:
        def listen(self, split: str) -> str:
            return split

    assert bind_by_name(Listener().listen, NAMES, owner="f")(1, "val", 3) == "val"


def test_an_unknown_argument_names_owner_and_what_is_accepted() -> None:
    with pytest.raises(TaskError) as caught:
        bind_by_name(lambda splits: None, NAMES, owner="Mine.epoch_end")
    assert str(caught.value) == (
        "Mine.epoch_end: unknown argument 'splits'\n"
        "  did you mean 'split'?\n"
        "  it may take any of: run, split, metrics"
    )


def test_parameters_are_listed_by_name() -> None:
    assert parameter_names(lambda a, *rest, b=1, **more: None) == ("a", "b")
