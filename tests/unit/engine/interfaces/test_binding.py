"""Tests of functions that take arguments by name."""

from __future__ import annotations

import pytest

from epochal.engine.interfaces.binding import bind_by_name, parameter_names
from epochal.errors import TaskError

NAMES = ("run", "split", "metrics")


def test_a_function_of_all_arguments_is_used_itself() -> None:
    def listen(run: object, split: object, metrics: object) -> None: ...

    assert bind_by_name(listen, NAMES, owner="listen") is listen


def test_functions_get_the_arguments_that_they_name() -> None:
    class Listener:
        def listen(self, split: str) -> str:
            return split

    table = [
        (lambda metrics, run: (metrics, run), (3, 1)),
        (lambda: "none", "none"),
        (lambda *, split: split, 2),
        (lambda run, other=5: (run, other), (1, 5)),
        (lambda *values: values, (1, 2, 3)),
        (Listener().listen, 2),
    ]
    for function, result in table:
        assert bind_by_name(function, NAMES, owner="f")(1, 2, 3) == result
    assert bind_by_name(print, NAMES, owner="f") is print


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
